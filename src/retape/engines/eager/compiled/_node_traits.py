"""Traits of one node of a compiler's graph: does it repeat, what does it cost."""

import operator
from typing import Any

import torch
from torch import SymBool, SymFloat, SymInt, Tensor, fx
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.checkpoint import CheckpointPolicy
from torch.utils.flop_counter import flop_registry

from retape.engines.eager._kernel_workspace import workspace_bytes

_CONVOLVE = torch.ops.aten.convolution.default
_IS_DENSE = torch.ops.aten.is_non_overlapping_and_dense.default
_CONVOLVE_BACK = torch.ops.aten.convolution_backward.default
# Bytes of single numbers that a kernel wraps as tensors: 12 were seen at once.
_WRAPPED = 64
# Operators of these namespaces compute from their arguments alone, if they are not
# tagged as random. What a custom operator or one of higher order does is not known.
_KNOWN = ("aten", "prims")
_FORCED = (CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE)


def tensors(node: fx.Node) -> list[Tensor]:
    """The tensors without values that a node stands for."""
    leaves = tree_leaves(node.meta.get("val"))
    return [each for each in leaves if isinstance(each, Tensor)]


def is_item(node: fx.Node) -> bool:
    """Tell whether the node takes one result out of several."""
    return node.target is operator.getitem


def is_forced(node: fx.Node) -> bool:
    """Tell whether a checkpoint of the program says to run the node again."""
    return node.meta.get("recompute") in _FORCED


def is_pure(node: fx.Node) -> bool:
    """Tell whether running the node again gives the same values, and nothing else."""
    if node.op != "call_function" or is_item(node):
        return True
    if node.meta.get("recompute") is CheckpointPolicy.MUST_SAVE:
        return False
    target = node.target
    if not isinstance(target, OpOverload):
        return False
    if target.namespace not in _KNOWN or target._schema.is_mutable:
        return False
    if torch.Tag.nondeterministic_seeded not in target.tags:
        return True
    return _argument(node, "dropout_p") == 0.0  # attention that drops nothing


def aliases(node: fx.Node) -> bool:
    """Tell whether the node's result is a view of its first argument."""
    target = node.target
    if not isinstance(target, OpOverload):
        return False
    infos = [each.alias_info for each in target._schema.returns]
    return any(each is not None and not each.is_write for each in infos)


def has_symbols(node: fx.Node) -> bool:
    """Tell whether the node has, or is, a size that is not a number."""
    value = node.meta.get("val")
    if isinstance(value, SymInt | SymFloat | SymBool):
        return True
    return any(
        isinstance(size, SymInt) for each in tensors(node) for size in each.shape
    )


def flops(node: fx.Node) -> int:
    """The floating-point operations of products, convolutions and attention."""
    target = node.target
    if not isinstance(target, OpOverload):
        return 0
    count = flop_registry.get(target.overloadpacket)
    if count is None:
        return 0
    args, kwargs = tree_map_only(
        fx.Node, lambda each: each.meta.get("val"), (node.args, node.kwargs)
    )
    return int(count(*args, **kwargs, out_val=node.meta.get("val")))


def traffic(node: fx.Node) -> int:
    """The bytes that a node reads and writes."""
    if node.op != "call_function":
        return 0
    every = [node, *node.all_input_nodes]
    return sum(t.numel() * t.element_size() for each in every for t in tensors(each))


def workspace(node: fx.Node) -> int:
    """Bytes that a kernel takes for itself while it runs, as far as they are known.

    Kernels copy what does not lie densely: the gradient of a sum, which is one number
    for all, takes as much as if it were written out. Convolutions on the CPU copy what
    they read and make, and some take more. Others wrap numbers as tensors.
    """
    target = node.target
    if not isinstance(target, OpOverload) or aliases(node):
        return 0
    return _copies(node, target) + _WRAPPED


def _copies(node: fx.Node, target: OpOverload) -> int:
    """Bytes of what a kernel copies of what it reads and makes."""
    read = [t for each in node.all_input_nodes for t in tensors(each)]
    if target in (_CONVOLVE, _CONVOLVE_BACK) and read[0].device.type == "cpu":
        copies = sum(t.nbytes for t in (*read, *tensors(node)))
        args = tree_map_only(fx.Node, lambda each: each.meta["val"], node.args)
        if target is _CONVOLVE:
            return copies + workspace_bytes(args).forward
        more = workspace_bytes((args[1], args[2], None, *args[4:10]))
        return copies + more.forward + more.reverse
    return sum(t.nbytes for t in read if not _IS_DENSE(t))


def _argument(node: fx.Node, name: str) -> Any:
    """The value of an argument by its name in the schema; its default, else `None`."""
    assert isinstance(node.target, OpOverload)
    for place, each in enumerate(node.target._schema.arguments):
        if each.name == name:
            if name in node.kwargs:
                return node.kwargs[name]
            return node.args[place] if place < len(node.args) else each.default_value
    return None

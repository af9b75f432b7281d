"""The compiler's joint graph of forward and backward, as lists over its nodes.

Numbers instead of nodes make a plan cheap to try: the peak of a graph of two thousand
nodes takes milliseconds. What is asked of a node itself stands first: does it repeat,
and what does it cost.
"""

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import SymBool, SymFloat, SymInt, Tensor, fx
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.checkpoint import CheckpointPolicy
from torch.utils.flop_counter import flop_registry

from retape._errors import UnsupportedError
from retape.engines.eager._kernel_workspace import workspace_bytes

_CONVOLVE = torch.ops.aten.convolution.default
_CONVOLUTION = "aten::convolution"
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
            return copies + workspace_bytes(_CONVOLUTION, args).forward
        more = workspace_bytes(_CONVOLUTION, (args[1], args[2], None, *args[4:10]))
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


@dataclass(frozen=True)
class Joint:
    """The joint graph in its own order, the output left out.

    Attributes:
        nodes: The nodes.
        inputs: Positions of the nodes that each reads.
        storages: The storages of each node's tensors.
        made: Those of them that the node itself makes.
        nbytes: Bytes of each storage; 0 for what was there before.
        workspace: Bytes that each takes for itself while it runs.
        backward: Whether a node depends on a cotangent.
        given: Whether it is there without running anything.
        view: Whether it shares the storage of what it reads, so that it costs nothing
            to run again, and saving it saves all of that.
        savable: Whether the forward can hand it to the backward.
        pure: Whether it gives the same again.
        flops: Floating-point operations of each node of the forward.
        cost: What running a node of the forward again costs.
        needed: Nodes of the forward that the backward reads, in order.
        outputs: Nodes that the forward returns.
        gradients: Nodes that the backward returns.
        first: The first node that reads a cotangent.
    """

    nodes: Sequence[fx.Node]
    inputs: Sequence[Sequence[int]]
    storages: Sequence[Sequence[int]]
    made: Sequence[Sequence[int]]
    nbytes: Sequence[int]
    workspace: Sequence[int]
    backward: Sequence[bool]
    given: Sequence[bool]
    view: Sequence[bool]
    savable: Sequence[bool]
    pure: Sequence[bool]
    flops: Sequence[int]
    cost: Sequence[int]
    needed: Sequence[int]
    outputs: Sequence[int]
    gradients: Sequence[int]
    first: int

    def runs_again(self, node: int) -> bool:
        """Tell whether the backward may run a node again, unless its value is saved."""
        return self.pure[node] and not self.given[node]

    def is_lost(self, node: int) -> bool:
        """Tell whether the backward can come by its value in no way."""
        return not (self.given[node] or self.pure[node] or self.savable[node])

    @cached_property
    def direct(self) -> frozenset[int]:
        """The values that the backward reads, views replaced by what they look at."""
        found = {self.owner(node) for node in self.needed}
        return frozenset(each for each in found if not self.given[each])

    def owner(self, node: int) -> int:
        """The node that makes the storage of a view."""
        while self.view[node] and self.inputs[node] and self.pure[node]:
            node = self.inputs[node][0]
        return node

    def bytes_of(self, node: int) -> int:
        """The bytes that saving a value takes; 1 at least, to divide by."""
        return max(1, sum(self.nbytes[s] for s in self.storages[node]))

    @cached_property
    def touched(self) -> list[tuple[int, ...]]:
        """The storages that each node reads or makes, those with bytes to count."""
        every = [
            {s for j in (k, *read) for s in self.storages[j] if self.nbytes[s]}
            for k, read in enumerate(self.inputs)
        ]
        return [tuple(each) for each in every]


def read_joint(
    graph: fx.Graph,
    cotangents: Iterable[fx.Node],
    inputs: Iterable[fx.Node],
    outputs: Iterable[Any],
    gradients: Iterable[Any],
    overwritten: frozenset[str] = frozenset(),
) -> Joint:
    """Read a joint graph.

    Args:
        graph: The graph.
        cotangents: The nodes that depend on a cotangent, cotangents included.
        inputs: The inputs of the forward.
        outputs: What the forward returns.
        gradients: What the backward returns.
        overwritten: Names of inputs that the forward overwrites.

    Raises:
        UnsupportedError: If a size is not known.
    """
    nodes = [each for each in graph.nodes if each.op != "output"]
    for node in nodes:
        if has_symbols(node):
            raise UnsupportedError(
                f"`{node.name}` of the compiled graph has a size that is not known "
                "when it is compiled, so no bytes can be promised. Pass "
                "`dynamic=False` to `torch.compile`: each shape has its own plan then."
            )
    place = {node: k for k, node in enumerate(nodes)}
    late, at_start = set(cotangents), set(inputs)
    read = [[place[each] for each in node.all_input_nodes] for node in nodes]
    storages, made, nbytes = _storages(nodes, read, at_start)
    backward = [node in late for node in nodes]
    pure = _pure(nodes, read, overwritten)
    ends = [place[each] for each in gradients if isinstance(each, fx.Node)]
    needed = {j for k, late in enumerate(backward) if late for j in read[k]}
    needed.update(ends)
    readers = (
        k
        for k, node in enumerate(nodes)
        if any(nodes[j].op == "placeholder" and backward[j] for j in read[k])
    )
    counts = [0 if late else flops(n) for n, late in zip(nodes, backward, strict=True)]
    moved = [
        0 if is_item(n) or not own else traffic(n)
        for n, own in zip(nodes, made, strict=True)
    ]
    return Joint(
        nodes=nodes,
        inputs=read,
        storages=storages,
        made=made,
        nbytes=nbytes,
        workspace=[workspace(node) for node in nodes],
        backward=backward,
        given=[node in at_start or node.op == "get_attr" for node in nodes],
        view=[
            node.op == "call_function" and not own and not is_item(node)
            for node, own in zip(nodes, made, strict=True)
        ],
        savable=[
            isinstance(node.meta.get("val"), Tensor) and not is_forced(node)
            for node in nodes
        ],
        pure=pure,
        flops=counts,
        # A product of matrices does tens of operations for each byte, so it weighs
        # more than what only moves bytes, which a compiler mostly fuses.
        cost=[a + b for a, b in zip(counts, moved, strict=True)],
        needed=sorted(k for k in needed if not backward[k]),
        outputs=[place[each] for each in outputs if isinstance(each, fx.Node)],
        gradients=ends,
        first=next(readers, len(nodes)),
    )


def _storages(
    nodes: Sequence[fx.Node], read: Sequence[Sequence[int]], given: set[fx.Node]
) -> tuple[list[list[int]], list[list[int]], list[int]]:
    """The storages of each node, those that it makes, and the bytes of each storage."""
    numbers: dict[int, int] = {}
    nbytes: list[int] = []
    storages: list[list[int]] = []
    made: list[list[int]] = []
    for node, sources in zip(nodes, read, strict=True):
        storages.append([])
        made.append([])
        if sources and aliases(node):
            # A pass over the graph may have given a view values of their own.
            storages[-1] += storages[sources[0]]
            continue
        for tensor in tensors(node):
            storage = tensor.untyped_storage()
            number = numbers.setdefault(storage._cdata, len(nbytes))
            if number == len(nbytes):
                nbytes.append(0 if node in given else storage.nbytes())
                made[-1].append(number)
            if number not in storages[-1]:
                storages[-1].append(number)
    return storages, made, nbytes


def _pure(
    nodes: Sequence[fx.Node],
    read: Sequence[Sequence[int]],
    overwritten: frozenset[str],
) -> list[bool]:
    """Whether each node, run in the backward, gives what it gave in the forward."""
    pure: list[bool] = []
    changed: list[bool] = []
    for node, sources in zip(nodes, read, strict=True):
        # What was overwritten is lost, and with it all views of it.
        lost = node.name in overwritten or (
            aliases(node) and any(changed[j] for j in sources[:1])
        )
        changed.append(lost)
        same = is_forced(node) or (
            is_pure(node) and not any(changed[j] for j in sources)
        )
        if is_item(node):
            same = same and pure[sources[0]]
        pure.append(same and not lost)
    return pure

"""Traits of a compiled graph: what it overwrites, whether it draws, why it is refused.

It is asked before the graph is compiled, when it still consists of PyTorch's operators.
A region is run again as it is, so what must happen once has no place in it.
"""

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import SymInt, Tensor, fx
from torch._ops import HigherOrderOperator, OpOverload
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves

from retape.engines.eager._collective_traits import NAMESPACES as COLLECTIVES
from retape.engines.eager.compiled._node_traits import tensors
from retape.engines.eager.regions._footprint import Footprint
from retape.engines.eager.trace._operator_traits import OperatorTraits

_COPY = torch.ops.aten.copy_.default
# Operators of higher order that overwrite nothing and draw from one generator at most.
_REPEATABLE = frozenset(
    {"flex_attention", "flex_attention_backward", "run_and_save_rng_state"}
)


def why_no_graph(inputs: Sequence[Any]) -> str | None:
    """Why a graph with such inputs is not kept compiled, if it is not."""
    for each in inputs:
        if isinstance(each, Tensor) and is_traceable_wrapper_subclass(each):
            return f"it is given a tensor of type `{type(each).__name__}`"
    return None


def why_no_region(graph: fx.Graph, made: Footprint) -> str | None:
    """Why the forward of a graph is no step that can be run again, if it is none."""
    given = graph.find_nodes(op="placeholder")
    for node in given:
        value = node.meta.get("val")
        if isinstance(value, SymInt):
            if not value.node.expr.is_Symbol:
                return f"one of its inputs, `{node.name}`, is a formula of sizes"
        elif not isinstance(value, Tensor | int | float | bool | None):
            return f"one of its inputs is a `{type(value).__name__}`"
        elif isinstance(value, Tensor) and value.layout is not torch.strided:
            return f"one of its inputs has the layout `{value.layout}`"
    for node in graph.nodes:
        why = _why_not(node, given) if node.op == "call_function" else None
        if why is not None:
            return why
    if made.unknown([symbol for _, symbol in symbols_of(graph)]):
        return "sizes of what it makes depend on values"
    if any(each.op == "get_attr" for each in graph.output_node().all_input_nodes):
        return "it returns a constant of its own"
    return _why_no_draw(graph, given)


def why_no_reverse(
    graph: fx.Graph, made: Footprint, symbols: Collection[Any]
) -> str | None:
    """Why the backward of a graph keeps it from being a step, if it does.

    Args:
        graph: The compiled backward.
        made: Its footprint.
        symbols: The sizes that are arguments of the forward.
    """
    if made.unknown(symbols):
        return "sizes of what its backward makes depend on values"
    for node in graph.nodes:
        target = node.target
        if isinstance(target, OpOverload) and target._schema.is_mutable:
            return f"its backward overwrites what it is given (`{target}`)"
    return None


def symbols_of(graph: fx.Graph) -> list[tuple[int, Any]]:
    """Places of the arguments that are sizes, and what they are called in formulas."""
    given = enumerate(graph.find_nodes(op="placeholder"))
    values = [(place, node.meta.get("val")) for place, node in given]
    return [(k, v.node.expr) for k, v in values if isinstance(v, SymInt)]


def region_traits(graph: fx.Graph) -> OperatorTraits:
    """What the trace must know about a graph, as about any operator."""
    given = {n: k for k, n in enumerate(graph.find_nodes(op="placeholder"))}
    written = {given[n.args[0]] for n in graph.nodes if n.target is _COPY}
    return OperatorTraits(
        view=False,
        writes=tuple(sorted(written)),
        random=any(map(_is_random, graph.nodes)),
        chance=None,
        uninitialised=False,
        resizes=False,
        scratch=False,
        collective=False,
        lean=True,  # what its backward takes is counted from its graph
        copying=False,
        varying=True,
        label=False,
    )


def _why_not(node: fx.Node, given: Sequence[fx.Node]) -> str | None:
    target = node.target
    if isinstance(target, HigherOrderOperator):
        name = target.name()
        return None if name in _REPEATABLE else f"it contains `{name}`"
    if not isinstance(target, OpOverload):
        return None
    if target.namespace in COLLECTIVES or target.namespace in ("fsdp", "symm_mem"):
        return f"`{target}` in it talks to other processes"
    if target is _COPY and node.args[0] in given:
        return None
    return f"`{target}` in it writes in place" if target._schema.is_mutable else None


def _why_no_draw(graph: fx.Graph, given: Sequence[fx.Node]) -> str | None:
    """Why a graph draws from generators that are not known, if it does.

    The state of that of the first tensor's device is saved and set.
    """
    devices = (each.device for node in given for each in tensors(node))
    first = next(devices, torch.device("cpu"))
    for node in filter(_is_random, graph.nodes):
        if any(isinstance(each, torch.Generator) for each in tree_leaves(node.kwargs)):
            return f"`{node.target}` in it draws from a generator of its own"
        if any(each.device != first for each in tensors(node)):
            return f"`{node.target}` in it draws on another device than `{first}`"
    return None


def _is_random(node: fx.Node) -> bool:
    target = node.target
    if isinstance(target, HigherOrderOperator):
        return True
    return isinstance(target, OpOverload) and (
        torch.Tag.nondeterministic_seeded in target.tags
    )

"""Cost of a compiled graph: that of its operators, in the unit of `step_cost`."""

import torch
from torch import Tensor, fx

from retape.engines.eager.analysis._operator_cost import call_cost
from retape.engines.eager.compiled._node_traits import aliases, is_item, tensors


def graph_cost(graph: fx.Graph) -> int:
    """The cost of running a graph, its calls left out: they are one.

    Sizes that change count as they were when the graph was compiled.
    """
    return sum(map(_node_cost, graph.nodes))


def _node_cost(node: fx.Node) -> int:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or aliases(node) or is_item(node):
        return 0
    made = [_known_shape(each) for each in tensors(node)]
    read = [t for each in node.all_input_nodes for t in tensors(each)]
    if not made:
        return 0
    touched = sum(_nbytes(each) for each in (*tensors(node), *read))
    return call_cost(
        target._schema.name, touched, [_known_shape(t) for t in read], made[0]
    )


def _known_shape(tensor: Tensor) -> tuple[int, ...]:
    return tuple(map(_hint, tensor.shape))


def _nbytes(tensor: Tensor) -> int:
    return _hint(tensor.numel()) * tensor.element_size()


def _hint(size: int | torch.SymInt) -> int:
    return int(size.node.hint) if isinstance(size, torch.SymInt) else size

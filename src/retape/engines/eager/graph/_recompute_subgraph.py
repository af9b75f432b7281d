"""Computing missing values of a graph again.

The walk back from a missing value goes through marked and unmarked nodes alike, to the
nearest values that exist or inputs that were saved. It has a stack of its own, so a
chain of any depth is possible; `max_recompute_depth` bounds it where wanted.
"""

import logging

import torch
from torch import Tensor

from retape.engines.eager._errors import MutationError, RecomputeDepthError
from retape.engines.eager.graph._node import Node, node_name
from retape.engines.eager.trace._random_state import RandomStates

_log = logging.getLogger("retape.torch")


def recomputed(node: Node, *, keep_between: bool = False) -> Tensor:
    """The value of a node, computed again if it is missing: see `Graph.recompute`."""
    with node.lock:
        if node.value is not None:
            check_in_place(node)
            return node.value
        missing = _missing(node)
        readers: dict[int, int] = {}
        for each in missing:
            for parent in _sources(each):
                readers[parent.index] = readers.get(parent.index, 0) + 1
        values: dict[int, Tensor] = {}
        for each in missing:
            values[each.index] = _evaluate(each, values)
            if keep_between:
                _set_value(each, values[each.index])
            for parent in _sources(each):
                readers[parent.index] -= 1
                if not readers[parent.index]:
                    values.pop(parent.index, None)
        _set_value(node, values[node.index])
        return values[node.index]


def _set_value(node: Node, value: Tensor) -> None:
    node.value, node._version = value, value._version


def _sources(node: Node) -> tuple[Node, ...]:
    """The parents that have to be there: none if the inputs are saved."""
    return () if node.saved_inputs is not None else node.parents


def _missing(root: Node) -> list[Node]:
    """Nodes to evaluate for `root`, in order, by a walk with a stack of its own."""
    limit = root.options.max_recompute_depth
    depth = {root.index: 1}
    found = {root.index: root}
    stack = [root]
    while stack:
        node = stack.pop()
        for parent in _sources(node):
            if parent.value is not None:
                continue
            deeper = depth[node.index] + 1
            if limit is not None and deeper > limit:
                raise RecomputeDepthError(_too_deep(root, limit))
            if depth.get(parent.index, 0) < deeper:
                depth[parent.index] = deeper
                found[parent.index] = parent
                stack.append(parent)
    return [found[index] for index in sorted(found)]


def _evaluate(node: Node, values: dict[int, Tensor]) -> Tensor:
    inputs = node.saved_inputs
    if inputs is None:
        inputs = tuple(_parent_value(parent, values) for parent in node.parents)
    else:
        versions = tuple(tensor._version for tensor in inputs)
        if node._saved_versions and versions != node._saved_versions:
            raise MutationError(_written(node, "a saved input"))
    assert node.op is not None
    if node.options.verbose:
        _log.info("recompute node %d (%s)", node.index, node_name(node))
    with torch.no_grad(), RandomStates() as random:
        random.set_all(node._random)
        return node.op(*inputs)


def _parent_value(parent: Node, values: dict[int, Tensor]) -> Tensor:
    if parent.index in values:
        return values[parent.index]
    value = parent.value
    assert value is not None
    check_in_place(parent)
    return value


def check_in_place(node: Node) -> None:
    if node.value is not None and node.op is not None:
        if node.value._version != node._version:
            raise MutationError(_written(node, "its value"))


def _written(node: Node, what: str) -> str:
    return (
        f"Node `{node.index}` (`{node_name(node)}`): {what} was overwritten in place, "
        "so it is not what the operation gives. Work on a `clone()`, or call "
        "`graph.accept(node)` to make the new value the node's own."
    )


def _too_deep(root: Node, limit: int) -> str:
    return (
        f"Node `{root.index}` lies more than `max_recompute_depth={limit}` missing "
        "values above the nearest one that exists. Mark checkpoints more densely, or "
        "raise the bound."
    )

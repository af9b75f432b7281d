"""A node of a recomputable graph, how a checkpoint is taken at it, and its value again.

The walk back from a missing value goes through marked and unmarked nodes alike, to the
nearest values that exist or inputs that were saved. It has a stack of its own, so a
chain of any depth is possible; `max_recompute_depth` bounds it where wanted.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from retape._arguments import whole, word_of
from retape._errors import MutationError, PlanError, RecomputeDepthError
from retape.engines.eager._wrapper_tensors import writes_of
from retape.engines.eager.trace._geometry import has_storage
from retape.engines.eager.trace._operator_traits import (
    nested_tensors,
    traits_of,
    written_tensors,
)
from retape.engines.eager.trace._random_state import Drawn, Draws, RandomStates


@dataclass(frozen=True, slots=True)
class CheckpointOptions:
    """Options of a checkpoint: see `Graph.mark_checkpoint`."""

    save_inputs: bool = True
    force: bool = False
    verbose: bool = False
    save_rng: bool = True
    max_recompute_depth: int | None = None
    detach_inputs: bool = True

    def __post_init__(self) -> None:
        depth = self.max_recompute_depth
        if depth is not None and whole("max_recompute_depth", depth) < 1:
            raise PlanError(
                f"`max_recompute_depth={depth}` allows no recomputation at all. Give "
                "at least 1, or `None` for no bound."
            )

    @staticmethod
    def of(given: dict[str, Any]) -> "CheckpointOptions":
        """Options by their names."""
        known = [option.name for option in fields(CheckpointOptions)]
        return CheckpointOptions(
            **{word_of("option", k, known): given[k] for k in given}
        )


@dataclass(eq=False, slots=True)
class Node:
    """One operation of a graph.

    Attributes:
        op: The function, `None` for a leaf.
        parents: The nodes that it reads.
        value: Its result, `None` if it was let go.
        is_checkpoint: Whether it was marked.
        saved_inputs: What it was computed from, if that was kept.
    """

    op: Callable[..., Tensor] | None
    # Not in the text of a node: a parent that two nodes read would be there twice, and
    # what it is made of four times, eight times, ...
    parents: tuple["Node", ...] = field(repr=False)
    value: Tensor | None = field(repr=False)
    index: int
    is_checkpoint: bool = False
    saved_inputs: tuple[Tensor, ...] | None = field(default=None, repr=False)
    options: CheckpointOptions = CheckpointOptions()
    lock: Any = field(default_factory=threading.RLock, repr=False)
    _random: Drawn = field(default=(), repr=False)
    _version: int = field(default=0, repr=False)
    _saved_versions: tuple[int, ...] = field(default=(), repr=False)
    _overwritten: tuple[tuple[Tensor, Tensor], ...] = field(default=(), repr=False)


def node_name(node: Node) -> str:
    """The name of a node's operation."""
    return getattr(node.op, "__name__", "leaf" if node.op is None else repr(node.op))


def topological_order(root: Node) -> list[Node]:
    """The nodes that `root` is computed from, parents first, `root` last."""
    found: dict[int, Node] = {}
    stack = [root]
    while stack:
        node = stack.pop()
        if node.index not in found:
            found[node.index] = node
            stack.extend(node.parents)
    return [found[index] for index in sorted(found)]


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
    node.value, node._version = value, writes_of(value)


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
        saved = zip(node.parents, inputs, node._saved_versions, strict=True)
        for parent, tensor, version in saved:
            if writes_of(tensor) != version:
                raise MutationError(_written(parent))
    assert node.op is not None
    if node.options.verbose:
        _log.info("recompute node %d (%s)", node.index, node_name(node))
    with torch.no_grad(), as_before(node):
        return node.op(*inputs)


class Before(Draws):
    """Sees what an operation overwrites and has not made, such as buffers, too.

    Attributes:
        overwritten: By tensor, its value before it was overwritten first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.overwritten: dict[Tensor, Tensor] = {}
        self._mark = object()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operator, and note the values that it is about to overwrite."""
        given = args, list((kwargs or {}).values())
        self._note(given, made=False)
        if isinstance(func, OpOverload):
            for tensor in written_tensors(traits_of(func), args, kwargs or {}):
                if has_storage(tensor) and not self._is_made(tensor):
                    if tensor not in self.overwritten:
                        self.overwritten[tensor] = tensor.clone()
        result = super().__torch_dispatch__(func, types, args, kwargs)
        self._note(result, made=True)
        return result

    def _note(self, tree: Any, made: bool) -> None:
        for storage in (
            t.untyped_storage() for t in nested_tensors(tree) if has_storage(t)
        ):
            if getattr(storage, _OF_NODE, (None, False))[0] is not self._mark:
                setattr(storage, _OF_NODE, (self._mark, made))

    def _is_made(self, tensor: Tensor) -> bool:
        return getattr(tensor.untyped_storage(), _OF_NODE)[1]


_OF_NODE = "_retape_of_node"
"""Hung on a storage: by whom it was seen, and whether an operation has made it."""


@contextmanager
def as_before(node: Node) -> Iterator[None]:
    """What a node draws from and overwrites is as it was before; then as it is now."""
    present: list[tuple[Tensor, Tensor]] = []
    with torch.no_grad():  # two may lie on one another
        for tensor, value in reversed(node._overwritten):
            present.append((tensor, tensor.clone()))
            tensor.copy_(value)
    try:
        with RandomStates() as random:
            random.set_all(node._random)
            yield
    finally:
        with torch.no_grad():
            for tensor, value in reversed(present):
                tensor.copy_(value)


def _parent_value(parent: Node, values: dict[int, Tensor]) -> Tensor:
    if parent.index in values:
        return values[parent.index]
    value = parent.value
    assert value is not None
    check_in_place(parent)
    return value


def check_in_place(node: Node) -> None:
    if node.value is not None and writes_of(node.value) != node._version:
        raise MutationError(_written(node))


def _written(node: Node) -> str:
    return (
        f"Node `{node.index}` (`{node_name(node)}`): its value was overwritten in "
        "place, so it is not what others were computed from. Work on a `clone()`, or "
        "call `graph.accept(node)` for this node to make the new value its own."
    )


def _too_deep(root: Node, limit: int) -> str:
    return (
        f"Node `{root.index}` lies more than `max_recompute_depth={limit}` missing "
        "values above the nearest one that exists. Mark checkpoints more densely, or "
        "raise the bound."
    )

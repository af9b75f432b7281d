"""A node of a recomputable graph, and how a checkpoint is taken at it."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from torch import Tensor

from retape.engines.eager._errors import PlanError
from retape.engines.eager.trace._random_state import Drawn


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
        if depth is not None and depth < 1:
            raise PlanError(
                f"`max_recompute_depth={depth}` allows no recomputation at all. Give "
                "at least 1, or `None` for no bound."
            )


def options_of(given: dict[str, Any]) -> CheckpointOptions:
    """Options that were passed by name."""
    known = [each.name for each in fields(CheckpointOptions)]
    for name in given:
        if name not in known:
            raise PlanError(
                f"`{name}=` is no option of a checkpoint: pass some of "
                f"{', '.join(known)}."
            )
    return CheckpointOptions(**given)


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

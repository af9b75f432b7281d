"""From a split rule to a stream of actions, by an n-ary or by a binary tree.

Both are the paper's, without its recursion: an explicit stack holds one entry per
snapshot alive, so memory is O(snapshots) and no recursion limit is met. They visit the
same intervals in the same order and yield the same actions; the n-ary one is faster.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ._action import Action, Advance, Drop, Restore, Reverse, Store
from ._split import Rule

TreeName: TypeAlias = Literal["binary", "n-ary"]


@dataclass(slots=True)
class Node:
    """An inner node: a stored capsule at `lo`, with children up to `hi` still to do."""

    lo: int
    hi: int
    snapshots: int
    sweeps: int
    restore: Restore
    drop: Drop

    @classmethod
    def of(
        cls, lo: int, hi: int, snapshots: int, sweeps: int, stage: int, slot: int
    ) -> "Node":
        """The node over the stages lo, ..., hi - 1, stored in `slot`."""
        at = lo * stage
        return cls(lo, hi, snapshots, sweeps, Restore(at, slot), Drop(at, slot))


def n_ary_tree(
    length: int, stage: int, snapshots: int, sweeps: int, rule: Rule
) -> Iterator[Action]:
    """`TREEVERSE`, Fig. 26: a node stores its start and walks its children leftwards.

    The first node is the rightmost child of nothing; `walk` does the rest.
    """
    slots = range(max(snapshots, length + 1))
    stack: list[Node] = []
    whole = 0, -(-length // stage), snapshots, sweeps
    yield from _descend(whole, stack, slots, length, stage, rule)
    yield from walk(stack, slots, length, stage, rule)


def walk(
    stack: list[Node], slots: Sequence[int], length: int, stage: int, rule: Rule
) -> Iterator[Action]:
    """`REST`, Fig. 26: reverse the nodes on a stack from the last to the first.

    Args:
        stack: Nodes whose starts are stored, each ending where the next begins; used
            up.
        slots: The slot for a node at each depth of the stack.
        length: Steps below which to reverse.
        stage: Steps in a stage.
        rule: Where to split.
    """
    while stack:
        node = stack[-1]
        yield node.restore
        lo, hi, d, t = node.lo, node.hi, node.snapshots, node.sweeps
        if split := rule(hi - lo, d, t):
            yield Advance(lo * stage, (lo + split) * stage)
            node.hi, node.sweeps = lo + split, t - 1
            child = lo + split, hi, d - 1, t
            yield from _descend(child, stack, slots, length, stage, rule)
        else:
            stack.pop()
            yield node.drop
            yield Reverse(lo * stage, min(hi * stage, length))


def _descend(
    part: tuple[int, int, int, int],
    stack: list[Node],
    slots: Sequence[int],
    length: int,
    stage: int,
    rule: Rule,
) -> Iterator[Action]:
    """`TREEVERSE` and `FIRST`, Fig. 26: from an interval to its rightmost leaf."""
    lo, hi, d, t = part
    while split := rule(hi - lo, d, t):
        slot = slots[len(stack)]
        yield Store(lo * stage, slot)
        stack.append(Node.of(lo, lo + split, d, t - 1, stage, slot))
        yield Advance(lo * stage, (lo + split) * stage)
        lo, d = lo + split, d - 1
    yield Reverse(lo * stage, min(hi * stage, length))


def binary_tree(
    length: int, stage: int, snapshots: int, sweeps: int, rule: Rule
) -> Iterator[Action]:
    """`BINARY`, Fig. 27: a right branch costs a snapshot, a left branch a sweep.

    `pending` holds the left branches still to be taken, each with a stored start.
    """
    pending: list[tuple[int, int, int, int]] = []
    lo, hi, d, t, stored = 0, -(-length // stage), snapshots, sweeps, False
    while True:
        at, slot = lo * stage, len(pending)
        if split := rule(hi - lo, d, t):
            if not stored:
                yield Store(at, slot)
            yield Advance(at, (lo + split) * stage)
            pending.append((lo, lo + split, d, t - 1))
            lo, d, stored = lo + split, d - 1, False
            continue
        if stored:
            yield Drop(at, slot)
        yield Reverse(at, min(hi * stage, length))
        if not pending:
            return
        lo, hi, d, t = pending.pop()
        stored = True
        yield Restore(lo * stage, len(pending))

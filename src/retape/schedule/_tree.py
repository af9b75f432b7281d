"""From a split rule to a stream of actions, by an n-ary or by a binary tree.

Both are the paper's, without its recursion: an explicit stack holds one entry per
snapshot alive, so memory is O(snapshots) and no recursion limit is met. They visit the
same intervals in the same order and yield the same actions; the n-ary one is faster.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from retape.schedule._action import (
    Action,
    Advance,
    Drop,
    Restore,
    Reverse,
    Store,
    maker,
)
from retape.schedule._split import Rule

TreeName: TypeAlias = Literal["binary", "n-ary"]
"""The tree that is walked: of Fig. 27, or of Fig. 26; the actions are the same."""


_ADVANCE, _REVERSE = maker(Advance), maker(Reverse)
_STORE, _RESTORE, _DROP = maker(Store), maker(Restore), maker(Drop)


@dataclass(slots=True)
class Node:
    """An inner node: a capsule stored at `lo`, with children up to `hi` still to do.

    `place` is the (step, slot, tier) of the capsule.
    """

    lo: int
    hi: int
    snapshots: int
    sweeps: int
    place: tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class Tree:
    """Constants of a whole tree.

    Attributes:
        length: Where the run ends: stages are `stage` steps long, the last one shorter.
        stage: Steps in a stage.
        slots: The slot for a node at each depth of the stack.
        rule: Where to split.
        start: The step at which stage 0 begins.
        tier: Where the slots are.
    """

    length: int
    stage: int
    slots: Sequence[int]
    rule: Rule
    start: int = 0
    tier: str = "memory"


def n_ary_tree(tree: Tree, snapshots: int, sweeps: int) -> Iterator[Action]:
    """`TREEVERSE`, Fig. 26: a node stores its start and walks its children leftwards.

    The first node is the rightmost child of nothing; `walk` does the rest.
    """
    stages = -(-(tree.length - tree.start) // tree.stage)
    stack: list[Node] = []
    yield from _descend(tree, stack, 0, stages, snapshots, sweeps)
    yield from walk(tree, stack)


def walk(tree: Tree, stack: list[Node]) -> Iterator[Action]:
    """`REST`, Fig. 26: reverse the nodes on a stack from the last to the first.

    The right part of a node is entered here as `_descend` enters one, and not by a
    call of it: one generator inside another costs as much as an action.

    Args:
        tree: What they have in common.
        stack: Nodes whose starts are stored, each ending where the next begins; used
            up.
    """
    stage, start, rule = tree.stage, tree.start, tree.rule
    while stack:
        node = stack[-1]
        yield _RESTORE(node.place)
        lo, hi, d, t = node.lo, node.hi, node.snapshots, node.sweeps
        at = start + lo * stage
        if not (split := rule(hi - lo, d, t)):
            stack.pop()
            yield _DROP(node.place)
        else:
            node.hi, node.sweeps = lo + split, t - 1
            while True:
                lo, d = lo + split, d - 1
                before, at = at, start + lo * stage
                yield _ADVANCE((before, at))
                if not (split := rule(hi - lo, d, t)):
                    break
                place = at, tree.slots[len(stack)], tree.tier
                yield _STORE(place)
                stack.append(Node(lo, lo + split, d, t - 1, place))
        yield _REVERSE((at, min(start + hi * stage, tree.length)))


def _descend(
    tree: Tree, stack: list[Node], lo: int, hi: int, d: int, t: int
) -> Iterator[Action]:
    """`TREEVERSE` and `FIRST`, Fig. 26: from an interval to its rightmost leaf."""
    at = tree.start + lo * tree.stage
    while split := tree.rule(hi - lo, d, t):
        place = at, tree.slots[len(stack)], tree.tier
        yield _STORE(place)
        stack.append(Node(lo, lo + split, d, t - 1, place))
        lo, d = lo + split, d - 1
        before, at = at, tree.start + lo * tree.stage
        yield _ADVANCE((before, at))
    yield _REVERSE((at, min(tree.start + hi * tree.stage, tree.length)))


def binary_tree(tree: Tree, snapshots: int, sweeps: int) -> Iterator[Action]:
    """`BINARY`, Fig. 27: a right branch costs a snapshot, a left branch a sweep.

    `pending` holds the left branches still to be taken, each with a stored start.
    """
    pending: list[tuple[int, int, int, int]] = []
    stage, tier = tree.stage, tree.tier
    hi = -(-(tree.length - tree.start) // stage)
    lo, d, t, stored = 0, snapshots, sweeps, False
    while True:
        at, slot = tree.start + lo * stage, tree.slots[len(pending)]
        if split := tree.rule(hi - lo, d, t):
            if not stored:
                yield Store(at, slot, tier)
            yield Advance(at, at + split * stage)
            pending.append((lo, lo + split, d, t - 1))
            lo, d, stored = lo + split, d - 1, False
            continue
        if stored:
            yield Drop(at, slot, tier)
        yield Reverse(at, min(tree.start + hi * stage, tree.length))
        if not pending:
            return
        lo, hi, d, t = pending.pop()
        stored = True
        yield Restore(tree.start + lo * stage, tree.slots[len(pending)], tier)

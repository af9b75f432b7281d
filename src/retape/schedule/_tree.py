"""From a split rule to a stream of actions, by an n-ary or by a binary tree.

Both are the paper's, without its recursion: an explicit stack holds one entry per
snapshot alive, so memory is O(snapshots) and no recursion limit is met. They visit the
same intervals in the same order and yield the same actions; the n-ary one is faster.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ._action import Action, Advance, Drop, Restore, Reverse, Store
from ._split import Rule

TreeName: TypeAlias = Literal["binary", "n-ary"]


@dataclass(slots=True)
class _Node:
    """An inner node: a stored capsule at `lo`, with children up to `hi` still to do."""

    lo: int
    hi: int
    snapshots: int
    sweeps: int
    restore: Restore
    drop: Drop


def n_ary_tree(
    length: int, stage: int, snapshots: int, sweeps: int, rule: Rule
) -> Iterator[Action]:
    """`TREEVERSE`, Fig. 26: a node stores its start and walks its children leftwards.

    The first inner loop is `TREEVERSE` entering its rightmost child, the second `REST`.
    """
    stack: list[_Node] = []
    lo, hi, d, t = 0, -(-length // stage), snapshots, sweeps
    while True:
        while split := rule(hi - lo, d, t):
            at, slot = lo * stage, len(stack)
            yield Store(at, slot)
            keep = Restore(at, slot), Drop(at, slot)
            stack.append(_Node(lo, lo + split, d, t - 1, *keep))
            yield Advance(at, (lo + split) * stage)
            lo, d = lo + split, d - 1
        yield Reverse(lo * stage, min(hi * stage, length))
        while stack:
            node = stack[-1]
            yield node.restore
            lo, hi, d, t = node.lo, node.hi, node.snapshots - 1, node.sweeps
            if split := rule(hi - lo, node.snapshots, t):
                yield Advance(lo * stage, (lo + split) * stage)
                lo += split
                node.hi, node.sweeps = lo, t - 1
                break
            stack.pop()
            yield node.drop
            yield Reverse(lo * stage, hi * stage)
        else:
            return


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

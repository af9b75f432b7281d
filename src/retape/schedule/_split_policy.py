"""The divide-and-conquer schedules as policies: states only, cut by a split rule."""

from functools import lru_cache
from typing import Any

from retape.schedule._binomial import least_sweeps
from retape.schedule._policy_stream import Held
from retape.schedule._split import (
    Split,
    binomial_split,
    bisection_split,
    treeverse_split,
)


def _in_memory(room: Any) -> Held[Any]:
    return Held("memory", False, room)


class BinomialPolicy:
    """Cuts at the binomial split. What is free is a number of slots."""

    # The same few of both are asked for again and again: half of a stream's time.
    _split = staticmethod(lru_cache(maxsize=4096)(binomial_split))
    _held = staticmethod(lru_cache(maxsize=4096)(_in_memory))

    def keep(self, stages: int, room: int) -> Held[int]:
        """The state, always."""
        return self._held(room - 1)

    def split(self, stages: int, held: Held[int]) -> int:
        """The slot of the start counts among those that the rule is given."""
        return self._split(stages, held.room + 1)

    def after_read(self, stages: int, held: Held[int]) -> Held[int]:
        """It stays until its own stage is reversed."""
        return held

    def is_alone(self, held: Held[int]) -> bool:
        """Tell whether no other slot is free."""
        return not held.room


class BisectionPolicy(BinomialPolicy):
    """Halves."""

    _split = staticmethod(bisection_split)


class TreeversePolicy(BinomialPolicy):
    """Cuts at the paper's split. What is free is (slots, sweeps)."""

    def keep(self, stages: int, room: Any) -> Held[Any]:
        """The state, always."""
        slots, sweeps = room
        return self._held((slots - 1, sweeps))

    def split(self, stages: int, held: Held[Any]) -> int:
        """By the slots and the sweeps that are left."""
        slots, sweeps = held.room
        return treeverse_split(stages, slots + 1, sweeps)

    def after_read(self, stages: int, held: Held[Any]) -> Held[Any]:
        """One sweep less is left for the stages before the split."""
        slots, sweeps = held.room
        return self._held((slots, sweeps - 1))

    def is_alone(self, held: Held[Any]) -> bool:
        """Tell whether no other slot is free."""
        return not held.room[0]


def split_policy(split: Split, stages: int, snapshots: int) -> tuple[Any, Any]:
    """The policy of a split, and what is free at the beginning of a run."""
    if split == "treeverse":
        sweeps = least_sweeps(stages, snapshots) if stages > 1 else 0
        return TreeversePolicy(), (snapshots, sweeps)
    policy = BisectionPolicy() if split == "bisection" else BinomialPolicy()
    return policy, snapshots

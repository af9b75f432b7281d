"""A schedule of unknown length in the words of the package `checkpoint_schedules`.

The driver of this library holds back the capsule before a stage until it knows whether
that stage is the last; a manager that tapes as it goes (pyadjoint's) must be told at
once. So a run of N steps is scheduled as the first N of N + 1: the last step that
`OnlineBinomial.reverse` would reverse is not there, and all behind it is as it was.
"""

import sys
from collections.abc import Iterator
from importlib import import_module
from itertools import islice
from typing import Any

from retape._peer_actions import adapted_schedule
from retape.schedule._action import Action
from retape.schedule._online import Doubling, LeastCost, OnlineBinomial


class OnlineStream:
    """The actions of an online schedule, before and after its length is known.

    Attributes:
        drops: Whether snapshots may be given up before the run has ended.
    """

    def __init__(self, online: OnlineBinomial, drops: bool) -> None:
        self.drops = drops
        self._online = online
        self._state: LeastCost | Doubling = online.begin()
        self._kept: list[int] = []

    def until(self, step: int) -> tuple[tuple[int, ...], bool, int]:
        """Decide about the state before a step.

        Returns:
            The steps whose snapshots are given up, whether this one is kept, and the
            next step about which something has to be decided.
        """
        self._state, placed = self._state.place(step)
        keeps = placed.slot is not None
        if keeps:
            self._kept.append(step)
        dropped = tuple(at for at, _ in placed.dropped) if self.drops else ()
        return dropped, keeps, self._state.next_change(step + 1, sys.maxsize)

    def back(self, length: int) -> Iterator[Action]:
        """The actions of the way back."""
        state = self._state
        if not self.drops:
            # All that was kept is still there. The gap behind the last of them is as
            # long as all before it, so it is given the slots of a run of its own.
            count = len(self._kept) + self._state.snapshots - 1
            state = LeastCost(count, tuple(self._kept), tuple(range(count)))
        return islice(self._online.reverse(state, length + 1), 1, None)


def online_schedule(online: OnlineBinomial, drops: bool) -> Any:
    """A `CheckpointSchedule` that is told its length by `finalize`."""
    peer: Any = import_module("checkpoint_schedules")
    stream = OnlineStream(online, drops)

    class Online(adapted_schedule(peer)):
        """Actions of an online controller in the words of the other package."""

        def _iterator(self) -> Iterator[Any]:
            ram, work = peer.StorageType.RAM, peer.StorageType.WORK
            while self.max_n is None:
                first = self._n
                dropped, keeps, self._n = stream.until(first)
                for step in dropped:
                    yield peer.Move(step, ram, peer.StorageType.NONE)
                where = ram if keeps else work
                yield peer.Forward(first, self._n, keeps, False, where)
            yield peer.EndForward()
            length: int = self.max_n
            for action in self.followed(stream.back(length), length):
                if not isinstance(action, peer.EndForward):
                    yield action

        def uses_storage_type(self, storage_type: Any) -> bool:
            return bool(storage_type == peer.StorageType.RAM)

    return Online()

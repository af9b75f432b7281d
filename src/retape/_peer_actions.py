"""Actions of a schedule in the words of the package `checkpoint_schedules`.

Store(k), Advance(k, m)      ->  Forward(k, m, True, False, RAM)
Restore(k), Drop(k)          ->  Move(k, RAM, WORK)
Reverse(k, m)                ->  Forward(k, m, False, True, WORK), Reverse(m, k)
"""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from retape._errors import PlanError
from retape.schedule import Advance, Drop, Restore, Reverse, Store, Sweep, Tape
from retape.schedule._action import Action

TIERS = {"RAM": "memory", "DISK": "disk"}
"""Storages of that package, and tiers of this one."""

_STORAGES = {tier: storage for storage, tier in TIERS.items()}


def translate(actions: Iterable[Action], length: int, peer: Any) -> Iterator[Any]:
    """The actions of this library in the words of the other."""
    work, none = peer.StorageType.WORK, peer.StorageType.NONE
    stored: Store | None = None
    restored: Restore | None = None
    swept: Sweep | None = None
    for action in actions:
        if swept:
            gone = isinstance(action, Drop) and action.step == swept.start
            read = peer.Move if gone else peer.Copy
            yield read(swept.start, peer_tier(swept.tier, peer), work)
            yield peer.Reverse(swept.stop, swept.start, True)
            swept = None
            if gone:
                continue
        if restored and not (isinstance(action, Drop) and action.step == restored.step):
            yield peer.Copy(restored.step, peer_tier(restored.tier, peer), work)
            restored = None
        match action:
            case Store():
                stored = action
            case Advance(start, stop):
                storage = peer_tier(stored.tier, peer) if stored else work
                yield peer.Forward(start, stop, stored is not None, False, storage)
                stored = None
            case Restore():
                restored = action
            case Drop(step, _, tier):
                to = work if restored else none
                yield peer.Move(step, peer_tier(tier, peer), to)
                restored = None
            case Reverse(start, stop):
                yield peer.Forward(start, stop, False, True, work)
                if stop == length:
                    yield peer.EndForward()
                yield peer.Reverse(stop, start, True)
            case Tape(start, stop, _, tier):
                yield peer.Forward(start, stop, False, True, peer_tier(tier, peer))
            case Sweep():
                # Whether it is a copy or a move tells the next action.
                swept = action
    yield peer.EndReverse()


def tier_of(storage: Any) -> str:
    """This library's name of a storage."""
    return TIERS[storage.name]


def storage_name(tier: str) -> str:
    """That package's name of a tier.

    Raises:
        PlanError: If it has none for it.
    """
    if tier not in _STORAGES:
        raise PlanError(
            f"the schedule has a tier {tier!r}, and `checkpoint_schedules` knows RAM "
            "and DISK. Pass a schedule over 'memory' and 'disk'."
        )
    return _STORAGES[tier]


def peer_tier(tier: str, peer: Any) -> Any:
    """That package's storage for a tier."""
    return peer.StorageType[storage_name(tier)]


@cache
def adapted_schedule(peer: Any) -> Any:
    """A class of that package's schedules, which says where its actions have come to.

    The package is told, since this library does without it.
    """

    class Adapted(peer.CheckpointSchedule):
        """Actions of this library in the words of the other."""

        def __init__(self, length: int | None = None) -> None:
            super().__init__(length)
            self._ended = False

        def followed(self, actions: Iterable[Action], length: int) -> Iterator[Any]:
            """The actions, translated; the counters say what they have done."""
            for action in translate(actions, length, peer):
                if isinstance(action, peer.Forward):
                    self._n = action.n1
                elif isinstance(action, peer.Copy | peer.Move):
                    self._n = action.n
                elif isinstance(action, peer.Reverse):
                    self._r = length - action.n0
                self._ended = isinstance(action, peer.EndReverse)
                yield action

        @property
        def is_exhausted(self) -> bool:
            return self._ended

    return Adapted

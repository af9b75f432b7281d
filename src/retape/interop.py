"""To and from the action protocol of the package `checkpoint_schedules`.

With `to_checkpoint_schedules` code that obeys that package (pyadjoint, Firedrake,
tlm_adjoint) can run the schedules of this one; `from_checkpoint_schedules` is the other
way. The package is only needed for the former.
"""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from ._errors import PlanError, ScheduleError
from .schedule import Action, Advance, Drop, Restore, Reverse, Store

_TIERS = {"RAM": "memory", "DISK": "disk"}


def to_checkpoint_schedules(actions: Iterable[Action], length: int) -> Any:
    """A `checkpoint_schedules.CheckpointSchedule` that does what the actions say.

    Args:
        actions: A schedule of this library, of which each `Store` is followed by an
            `Advance` (that is so for all of them).
        length: Its number of steps, at least 1.

    Example:
        >>> from retape.interop import to_checkpoint_schedules
        >>> from retape.schedule import Schedule
        >>> for action in to_checkpoint_schedules(Schedule(2, 1), 2):
        ...     print(action)
        Forward(0, 1, True, False, StorageType.RAM)
        Forward(1, 2, False, True, StorageType.WORK)
        EndForward()
        Reverse(2, 1, True)
        Move(0, StorageType.RAM, StorageType.WORK)
        Forward(0, 1, False, True, StorageType.WORK)
        Reverse(1, 0, True)
        EndReverse()
    """
    peer: Any = import_module("checkpoint_schedules")

    if length < 1:
        raise PlanError(
            f"`length={length}` cannot be: `checkpoint_schedules` knows no runs "
            "without a step. Handle an empty run yourself."
        )

    class Adapted(peer.CheckpointSchedule):
        """Actions of this library in the words of the other."""

        def __init__(self) -> None:
            super().__init__(length)
            self._ended = False

        def _iterator(self) -> Iterator[Any]:
            for action in _translate(actions, length, peer):
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

        def uses_storage_type(self, storage_type: Any) -> bool:
            return any(
                storage_type == peer.StorageType[_storage(action.tier)]
                for action in actions
                if isinstance(action, Store)
            )

    return Adapted()


def from_checkpoint_schedules(schedule: Iterable[Any], length: int) -> Iterator[Action]:
    """The actions of a `checkpoint_schedules.CheckpointSchedule`.

    A schedule of that package can be iterated once; so can the result. Snapshots that
    it leaves behind at its end are dropped there. An advance over the very last step,
    which some of them make before they go back, is left out.

    Args:
        schedule: A schedule that keeps snapshots (not tapes) outside its stages.
        length: The number of steps.

    Raises:
        PlanError: If the schedule stores a tape, as mixed ones do.
    """
    slots = _Slots()
    for action in schedule:
        kind = type(action).__name__
        if kind == "Forward":
            yield from slots.forward(action, length)
        elif kind == "Reverse":
            yield Reverse(action.n0, action.n1)
        elif kind in ("Copy", "Move"):
            yield from slots.read(action, kind == "Move")
        elif kind == "EndReverse":
            yield from [slots.release(step, tier) for step, tier in sorted(slots.held)]
            return
        elif kind != "EndForward":
            raise ScheduleError(
                f"`{action!r}` is no action of `checkpoint_schedules` that is known "
                "here. Pass one of its schedules."
            )


@dataclass(slots=True)
class _Slots:
    """Numbers for snapshots that the other package knows by their steps."""

    held: dict[tuple[int, str], int] = field(default_factory=dict[tuple[int, str], int])
    free: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    high: dict[str, int] = field(default_factory=dict[str, int])

    def forward(self, action: Any, length: int) -> Iterator[Action]:
        _refuse_tape(action)
        stop = min(action.n1, length)
        if action.write_ics:
            yield self.take(action.n0, _tier(action.storage))
        if not action.write_adj_deps and stop < length:
            yield Advance(action.n0, stop)

    def read(self, action: Any, move: bool) -> Iterator[Action]:
        source = _tier(action.from_storage)
        if action.to_storage.name != "NONE":
            yield Restore(action.n, self.held[action.n, source], source)
        if move:
            yield self.release(action.n, source)
        if action.to_storage.name in _TIERS:
            yield self.take(action.n, _tier(action.to_storage))

    def take(self, step: int, tier: str) -> Store:
        free = self.free.setdefault(tier, [])
        slot = heapq.heappop(free) if free else self.high.get(tier, 0)
        self.high[tier] = max(self.high.get(tier, 0), slot + 1)
        self.held[step, tier] = slot
        return Store(step, slot, tier)

    def release(self, step: int, tier: str) -> Drop:
        slot = self.held.pop((step, tier))
        heapq.heappush(self.free[tier], slot)
        return Drop(step, slot, tier)


def _translate(actions: Iterable[Action], length: int, peer: Any) -> Iterator[Any]:
    work, none = peer.StorageType.WORK, peer.StorageType.NONE
    stored: Store | None = None
    restored: Restore | None = None
    for action in actions:
        if restored and not (isinstance(action, Drop) and action.step == restored.step):
            yield peer.Copy(restored.step, _peer_tier(restored.tier, peer), work)
            restored = None
        match action:
            case Store():
                stored = action
            case Advance(start, stop):
                storage = _peer_tier(stored.tier, peer) if stored else work
                yield peer.Forward(start, stop, stored is not None, False, storage)
                stored = None
            case Restore():
                restored = action
            case Drop(step, _, tier):
                to = work if restored else none
                yield peer.Move(step, _peer_tier(tier, peer), to)
                restored = None
            case Reverse(start, stop):
                yield peer.Forward(start, stop, False, True, work)
                if stop == length:
                    yield peer.EndForward()
                yield peer.Reverse(stop, start, True)
    yield peer.EndReverse()


def _refuse_tape(action: Any) -> None:
    if action.write_adj_deps and action.storage.name != "WORK":
        raise PlanError(
            f"`{action!r}` keeps a tape in a slot, and slots hold states here. Pass a "
            "schedule that is not mixed."
        )


def _tier(storage: Any) -> str:
    return _TIERS[storage.name]


def _storage(tier: str) -> str:
    return "DISK" if tier == "disk" else "RAM"


def _peer_tier(tier: str, peer: Any) -> Any:
    return peer.StorageType[_storage(tier)]

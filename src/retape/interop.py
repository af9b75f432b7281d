"""To the action protocol of the package `checkpoint_schedules`.

With `to_checkpoint_schedules` code that obeys that package (pyadjoint, Firedrake,
tlm_adjoint) can run the schedules of this one:

    Store(k), Advance(k, m)      ->  Forward(k, m, True, False, RAM)
    Restore(k), Drop(k)          ->  Move(k, RAM, WORK)
    Reverse(k, m)                ->  Forward(k, m, False, True, WORK), Reverse(m, k)
"""

import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from itertools import islice
from typing import Any

from retape._errors import PlanError
from retape.schedule import (
    Advance,
    Drop,
    OnlineBinomial,
    Restore,
    Reverse,
    Store,
    Sweep,
    Tape,
)
from retape.schedule._action import Action
from retape.schedule._placing._online_memory import LeastCost

__all__ = ["to_checkpoint_schedules"]

_STORAGES = {"memory": "RAM", "disk": "DISK"}
"""Tiers of this library, and storages of that package."""


def to_checkpoint_schedules(
    actions: Iterable[Action] | OnlineBinomial,
    length: int | None = None,
    *,
    drops: bool = False,
) -> Any:
    """A `checkpoint_schedules.CheckpointSchedule` that does what the actions say.

    Args:
        actions: A schedule of this library, of which each `Store` is followed by an
            `Advance` (that is so for all of them). Or `OnlineBinomial(snapshots,
            placement="doubling")`, for a run of unknown length: `finalize` tells it
            the length, as it does for the online schedules of that package, and then
            it goes back. pyadjoint's checkpoint manager drives it.
        length: Its number of steps, at least 1; None for an online schedule.
        drops: For an online schedule: whether a snapshot may be given up (`Move(n, RAM,
            NONE)`) before the run has ended; there are then never more than its
            `snapshots`. pyadjoint refuses such an action while it tapes. Without it all
            that were made are kept: with "doubling" `snapshots` and half of that for
            each time that the run becomes twice as long; and up to `snapshots - 1` more
            on the way back.

    Raises:
        PlanError: If `length` is no number of steps, or an online schedule is told one;
            if the schedule has a tier that is neither memory nor disk, or stages of
            several steps while its length is unknown.

    Examples:
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
        >>> from retape.schedule import OnlineBinomial
        >>> online = to_checkpoint_schedules(OnlineBinomial(2, placement="doubling"))
        >>> next(online)
        Forward(0, 1, True, False, StorageType.RAM)
        >>> online.finalize(1)
        >>> next(online)
        EndForward()
    """
    peer: Any = import_module("checkpoint_schedules")
    if isinstance(actions, OnlineBinomial):
        return _online_schedule(_told_later(actions, length), drops)
    if drops:
        raise PlanError(
            "`drops=True` is about runs whose length is not known, and this schedule "
            "knows it. Leave it out."
        )
    if length is None:
        raise PlanError(
            f"`length` is missing, and a `{type(actions).__name__}` is for runs of a "
            "known one. Pass its number of steps; an online schedule needs none."
        )
    if length < 1:
        raise _no_steps(length)
    for tier in getattr(actions, "tier_names", ()):
        _storage_name(tier)  # It says which one that package does not know.

    class Given(_adapted_schedule(peer)):
        """Actions that are known before the run."""

        def _iterator(self) -> Iterator[Any]:
            return self.followed(actions, length)

        def uses_storage_type(self, storage_type: Any) -> bool:
            return any(
                storage_type == peer.StorageType[_storage_name(action.tier)]
                for action in actions
                if isinstance(action, Store | Tape)
            )

    return Given(length)


def _told_later(online: OnlineBinomial, length: int | None) -> OnlineBinomial:
    """An online schedule that the other package's words can tell."""
    if length is not None:
        raise PlanError(
            f"`length={length}` is told to an online schedule by `finalize`, when the "
            "run has ended. Leave it out here."
        )
    if online.stage != 1:
        raise PlanError(
            f"`stage={online.stage}` is not known to `checkpoint_schedules`, where one "
            "step is taped at a time. Leave `stage` out."
        )
    return online


def _no_steps(length: int) -> PlanError:
    return PlanError(
        f"`length={length}` is not valid: `checkpoint_schedules` knows no runs "
        "without a step. Handle an empty run yourself."
    )


def _online_schedule(online: OnlineBinomial, drops: bool) -> Any:
    """A `CheckpointSchedule` that is told its length by `finalize`.

    The driver of this library holds back the capsule before a stage until it knows
    whether that stage is the last; a manager that tapes as it goes (pyadjoint's) must
    be told at once. So a run of N steps is scheduled as the first N of N + 1: the last
    step that `OnlineBinomial.reverse` would reverse is not there, and all behind it is
    as it was.

    Args:
        online: The schedule.
        drops: Whether snapshots may be given up before the run has ended.
    """
    peer: Any = import_module("checkpoint_schedules")

    class Online(_adapted_schedule(peer)):
        """Actions of an online controller in the words of the other package."""

        def _iterator(self) -> Iterator[Any]:
            ram, work = peer.StorageType.RAM, peer.StorageType.WORK
            state, kept = online.begin(), list[int]()
            while self.max_n is None:
                first = self._n
                state, placed = state.place(first)
                keeps = placed.slot is not None
                kept += [first] if keeps else []
                self._n = state.next_change(first + 1, sys.maxsize)
                for step, _ in placed.dropped if drops else ():
                    yield peer.Move(step, ram, peer.StorageType.NONE)
                where = ram if keeps else work
                yield peer.Forward(first, self._n, keeps, False, where)
            yield peer.EndForward()
            if not drops:
                # All that was kept is still there. The gap behind the last of them is
                # as long as all before it, so it is given the slots of a run of its
                # own.
                count = len(kept) + state.snapshots - 1
                state = LeastCost(count, tuple(kept), tuple(range(count)))
            length: int = self.max_n
            back = islice(online.reverse(state, length + 1), 1, None)
            for action in self.followed(back, length):
                if not isinstance(action, peer.EndForward):
                    yield action

        def uses_storage_type(self, storage_type: Any) -> bool:
            return bool(storage_type == peer.StorageType.RAM)

    return Online()


# Actions in the words of the other package ----------------------------------------


def _translated(actions: Iterable[Action], length: int, peer: Any) -> Iterator[Any]:
    """The actions of this library in the words of the other."""
    work, none = peer.StorageType.WORK, peer.StorageType.NONE
    stored: Store | None = None
    restored: Restore | None = None
    swept: Sweep | None = None
    for action in actions:
        if swept:
            gone = isinstance(action, Drop) and action.step == swept.start
            read = peer.Move if gone else peer.Copy
            yield read(swept.start, _peer_tier(swept.tier, peer), work)
            yield peer.Reverse(swept.stop, swept.start, True)
            swept = None
            if gone:
                continue
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
            case Tape(start, stop, _, tier):
                yield peer.Forward(start, stop, False, True, _peer_tier(tier, peer))
            case Sweep():
                # Whether it is a copy or a move tells the next action.
                swept = action
    yield peer.EndReverse()


def _storage_name(tier: str) -> str:
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


def _peer_tier(tier: str, peer: Any) -> Any:
    """That package's storage for a tier."""
    return peer.StorageType[_storage_name(tier)]


@cache
def _adapted_schedule(peer: Any) -> Any:
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
            for action in _translated(actions, length, peer):
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

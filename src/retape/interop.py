"""To and from the action protocol of the package `checkpoint_schedules`.

With `to_checkpoint_schedules` code that obeys that package (pyadjoint, Firedrake,
tlm_adjoint) can run the schedules of this one; `from_checkpoint_schedules` is the other
way. The package is only needed for the former.
"""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from itertools import islice
from typing import Any

from retape._arguments import whole
from retape._errors import PlanError, ScheduleError
from retape._peer_actions import TIERS, adapted_schedule, storage_name, tier_of
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
from retape.schedule._policy_stream import SlotNumbers

__all__ = [
    "from_checkpoint_schedules",
    "to_checkpoint_schedules",
]


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
        return online_schedule(_told_later(actions, length), drops)
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
        storage_name(tier)  # It says which one that package does not know.

    class Given(adapted_schedule(peer)):
        """Actions that are known before the run."""

        def _iterator(self) -> Iterator[Any]:
            return self.followed(actions, length)

        def uses_storage_type(self, storage_type: Any) -> bool:
            return any(
                storage_type == peer.StorageType[storage_name(action.tier)]
                for action in actions
                if isinstance(action, Store | Tape)
            )

    return Given(length)


def from_checkpoint_schedules(schedule: Iterable[Any], length: int) -> Iterator[Action]:
    """The actions of a `checkpoint_schedules.CheckpointSchedule`.

    A schedule of that package can be iterated once; so can the result. Snapshots that
    it leaves behind at its end are dropped there. An advance over the very last step,
    which some of them make before they go back, is left out. A tape that is stored, as
    mixed schedules do, is a `Tape` here, and its use a `Sweep`. An online schedule
    is told the length (`finalize`) when it has come so far.

    Args:
        schedule: A schedule of that package.
        length: The number of steps.

    Raises:
        PlanError: If the schedule stores a state and a tape at once, makes a tape from
            a tape, or reverses nothing.
        ScheduleError: If it yields what is no action of that package, or goes on
            forward beyond the length.

    Examples:
        >>> from checkpoint_schedules import MultistageCheckpointSchedule
        >>> from retape.schedule import replay
        >>> theirs = MultistageCheckpointSchedule(10, 3, 0)
        >>> replay(from_checkpoint_schedules(theirs, 10), 10).advances
        15
    """
    length, slots = whole("length", length), _Slots()
    if length < 1:
        raise _no_steps(length)
    for action in schedule:
        kind = type(action).__name__
        if kind == "Forward":
            if action.n0 >= length:
                raise ScheduleError(
                    f"`{action!r}` goes on beyond the {length} steps of the run, and "
                    "the schedule cannot be told its length. Pass one with `finalize`."
                )
            yield from slots.forward(action, length)
            if action.n1 >= length and _is_online(schedule):
                getattr(schedule, "finalize")(length)  # noqa: B009
        elif kind == "Reverse":
            yield from slots.reverse(action)
        elif kind in ("Copy", "Move"):
            yield from slots.read(action, kind == "Move")
        elif kind == "EndReverse":
            yield from [slots.release(key) for key in sorted(slots.held)]
            return
        elif kind != "EndForward":
            raise ScheduleError(
                f"`{action!r}` is not an action of `checkpoint_schedules` that is "
                "known here. Pass one of its schedules."
            )
    raise PlanError(f"`{schedule!r}` reverses nothing. Pass a schedule for an adjoint.")


def _is_online(schedule: object) -> bool:
    """Tell whether a schedule of that package has not been told the length yet."""
    return getattr(schedule, "max_n", 0) is None and hasattr(schedule, "finalize")


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


@dataclass(slots=True)
class _Slots:
    """Numbers for snapshots that the other package knows by their steps.

    `tapes` has the end of each tape that is held. `loaded` is a tape that was read: the
    next action sweeps it. `last` is a tape of the last stage, which is not kept here:
    that stage is reversed at once.
    """

    held: dict[tuple[int, str], int] = field(default_factory=dict[tuple[int, str], int])
    tapes: dict[tuple[int, str], int] = field(
        default_factory=dict[tuple[int, str], int]
    )
    numbers: dict[str, SlotNumbers] = field(default_factory=dict[str, SlotNumbers])
    loaded: tuple[tuple[int, str], bool] | None = None
    last: tuple[int, str] | None = None

    def forward(self, action: Any, length: int) -> Iterator[Action]:
        stop = min(action.n1, length)
        keeps_tape = action.write_adj_deps and action.storage.name in TIERS
        if action.write_ics and keeps_tape:
            raise PlanError(
                f"`{action!r}` keeps a state and a tape in one slot, and a slot holds "
                "one of them here. Pass a schedule that keeps them apart."
            )
        if action.write_ics:
            key = action.n0, tier_of(action.storage)
            yield Store(action.n0, self.take(key), key[1])
        if keeps_tape and stop == length:
            self.last = action.n0, tier_of(action.storage)
        elif keeps_tape:
            key = action.n0, tier_of(action.storage)
            self.tapes[key] = stop
            yield Tape(action.n0, stop, self.take(key), key[1])
        elif not action.write_adj_deps and stop < length:
            yield Advance(action.n0, stop)

    def reverse(self, action: Any) -> Iterator[Action]:
        if self.loaded is None:
            yield Reverse(action.n0, action.n1)
            return
        (key, move), self.loaded = self.loaded, None
        yield Sweep(action.n0, action.n1, self.held[key], key[1])
        if move:
            yield self.release(key)

    def read(self, action: Any, move: bool) -> Iterator[Action]:
        key = action.n, tier_of(action.from_storage)
        if key == self.last:
            self.last = None
            return
        if key in self.tapes and action.to_storage.name == "WORK":
            self.loaded = key, move
            return
        if key in self.tapes and action.to_storage.name in TIERS:
            raise PlanError(
                f"`{action!r}` moves a tape between tiers, and tapes stay where they "
                "are here. Pass a schedule that leaves them."
            )
        if action.to_storage.name != "NONE":
            yield Restore(action.n, self.held[key], key[1])
        if move:
            yield self.release(key)
        if action.to_storage.name in TIERS:
            to = action.n, tier_of(action.to_storage)
            yield Store(action.n, self.take(to), to[1])

    def take(self, key: tuple[int, str]) -> int:
        slot = self.numbers.setdefault(key[1], SlotNumbers([])).take()
        self.held[key] = slot
        return slot

    def release(self, key: tuple[int, str]) -> Drop:
        (step, tier), slot = key, self.held.pop(key)
        self.tapes.pop(key, None)
        self.numbers[tier].free.append(slot)
        return Drop(step, slot, tier)


def online_schedule(online: OnlineBinomial, drops: bool) -> Any:
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

    class Online(adapted_schedule(peer)):
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

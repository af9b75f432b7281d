"""Replay a stream of actions on an abstract machine: is it legal, what does it cost?

The replay trusts nothing of how the stream was made. It follows the working capsule,
the slots and the reverse sweep with sets and integers, and refuses the first action
that breaks a rule of `_action`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never

from retape._errors import ScheduleError
from retape.schedule._action import (
    Action,
    Advance,
    Drop,
    Restore,
    Reverse,
    Store,
    Sweep,
    Tape,
)
from retape.schedule._cost import Counts, TierMeter


def replay(
    actions: Iterable[Action],
    length: int,
    *,
    capacity: int | Mapping[str, int] | None = None,
    stage: int | None = None,
) -> Counts:
    """Check a stream of actions and count what it does.

    Args:
        actions: The stream.
        length: The number of steps that it is to reverse.
        capacity: The most snapshots allowed: on all tiers together, or on each tier
            named (a tier that is not named has none).
        stage: The most steps allowed in one `Reverse`.

    Returns:
        The counts.

    Raises:
        ScheduleError: At the first action that cannot be obeyed, with its position and
            the reason; or at the end, if steps are left over or slots are in use.

    Examples:
        >>> from retape.schedule import Schedule, replay
        >>> replay(Schedule(10, snapshots=3), 10).advances
        15
    """
    limits = capacity if isinstance(capacity, Mapping) else None
    total = capacity if isinstance(capacity, int) else None
    state = _Replay(length, total, limits, stage)
    for position, action in enumerate(actions):
        if not isinstance(action, Action):  # pyright: ignore
            raise ScheduleError(
                f"action {position}, `{action!r}`, is not an action of "
                "`retape.schedule`. Pass a schedule."
            )
        reason = state.obey(action)
        if reason:
            raise ScheduleError(
                f"action {position}, `{action}`, cannot be obeyed: {reason}. The "
                "stream is not a schedule; report it to whoever made it."
            )
    state.end()
    return state.counts


_Slot: TypeAlias = tuple[str, int]


@dataclass(slots=True)
class _Replay:
    length: int
    total: int | None
    limits: Mapping[str, int] | None
    stage: int | None
    at: int | None = 0
    left: int = field(init=False)
    slots: dict[_Slot, int] = field(default_factory=dict[_Slot, int])
    done: bool = False
    counts: Counts = field(default_factory=Counts)
    tiers: TierMeter = field(default_factory=TierMeter)
    # The end of the tape in a slot; `slots` has its start.
    tapes: dict[_Slot, int] = field(default_factory=dict[_Slot, int])

    def __post_init__(self) -> None:
        self.left = self.length

    def obey(self, action: Action) -> str:
        """Obey one action; return why it cannot be obeyed, or nothing."""
        match action:
            case Advance(start, stop):
                return self._advance(start, stop)
            case Store(step, slot, tier):
                return self._store(step, slot, tier)
            case Restore(step, slot, tier):
                if reason := self._holds(step, slot, tier):
                    return reason
                if (tier, slot) in self.tapes:
                    return "the slot holds a tape, from which no step can be run"
                self.tiers.read(tier)
                self.at = step
                self.counts.restores += 1
                return ""
            case Drop(step, slot, tier):
                if reason := self._holds(step, slot, tier):
                    return reason
                del self.slots[tier, slot]
                self.tapes.pop((tier, slot), None)
                self.tiers.freed(tier)
                return ""
            case Reverse(start, stop):
                return self._reverse(start, stop)
            case Tape(start, stop, slot, tier):
                return self._tape(start, stop, slot, tier)
            case Sweep(start, stop, slot, tier):
                return self._sweep(start, stop, slot, tier)
        assert_never(action)

    def _stands_at(self, step: int) -> str:
        if self.at == step:
            return ""
        return f"the working capsule is {_where(self.at)}, not at step {step}"

    def _goes_to(self, start: int, stop: int) -> str:
        if reason := self._stands_at(start):
            return reason
        if not start < stop:
            return "it does not go forward"
        if stop >= self.left:
            return f"it runs to step {stop}, and only steps below {self.left} are left"
        return ""

    def _advance(self, start: int, stop: int) -> str:
        if reason := self._goes_to(start, stop):
            return reason
        self.at = stop
        self.counts.advances += stop - start
        return ""

    def _store(self, step: int, slot: int, tier: str) -> str:
        if reason := self._stands_at(step) or self._occupy(step, slot, tier):
            return reason
        self.counts.stores += 1
        return ""

    def _occupy(self, step: int, slot: int, tier: str) -> str:
        if (tier, slot) in self.slots:
            return f"the slot holds step {self.slots[tier, slot]} already"
        if slot < 0:
            return "slots are numbered from 0"
        self.slots[tier, slot] = step
        self.tiers.wrote(tier)
        counts = self.counts
        counts.peak_snapshots = max(counts.peak_snapshots, len(self.slots))
        return self._over(tier)

    def _tape(self, start: int, stop: int, slot: int, tier: str) -> str:
        reason = self._goes_to(start, stop) or self._too_long(start, stop)
        if reason := reason or self._occupy(start, slot, tier):
            return reason
        self.tapes[tier, slot] = self.at = stop
        self.counts.taped += stop - start
        self.counts.kept_tapes += 1
        return ""

    def _sweep(self, start: int, stop: int, slot: int, tier: str) -> str:
        if reason := self._holds(start, slot, tier):
            return reason
        if (held := self.tapes.get((tier, slot))) != stop:
            what = (
                "a state" if held is None else f"the tape of steps {start}..{held - 1}"
            )
            return f"the slot holds {what}, not the tape of steps {start}..{stop - 1}"
        if stop != self.left:
            return f"the next step to be reversed is {self.left - 1}"
        self._swept(start, stop)
        return ""

    def _too_long(self, start: int, stop: int) -> str:
        if self.stage is not None and stop - start > self.stage:
            return f"a stage of {stop - start} steps is taped where {self.stage} may be"
        return ""

    def _swept(self, start: int, stop: int) -> None:
        self.at, self.left, self.done = None, start, start == 0
        counts = self.counts
        counts.reverses += 1
        counts.longest_stage = max(counts.longest_stage, stop - start)

    def _over(self, tier: str) -> str:
        if self.total is not None and len(self.slots) > self.total:
            return f"it makes {len(self.slots)} snapshots where {self.total} may live"
        if self.limits is not None:
            live, most = self.tiers.live(tier), self.limits.get(tier, 0)
            if live > most:
                return f"tier {tier!r} would hold {live} snapshots of {most}"
        return ""

    def _holds(self, step: int, slot: int, tier: str) -> str:
        held = self.slots.get((tier, slot))
        if held is None:
            return f"slot {slot} on tier {tier!r} is empty"
        return "" if held == step else f"the slot holds step {held}"

    def _reverse(self, start: int, stop: int) -> str:
        if reason := self._stands_at(start):
            return reason
        if stop != self.left or self.done:
            return f"the next step to be reversed is {self.left - 1}"
        if start >= stop and self.length:
            return "it has no steps"
        if reason := self._too_long(start, stop):
            return reason
        self._swept(start, stop)
        self.counts.taped += stop - start
        return ""

    def end(self) -> None:
        if not self.done:
            raise ScheduleError(
                f"the stream ends with {self.left} of `length={self.length}` steps not "
                "reversed. It must reverse every step, from the last to the first."
            )
        if self.slots:
            (tier, slot), step = next(iter(self.slots.items()))
            raise ScheduleError(
                f"the stream ends with step {step} still in slot {slot} on tier "
                f"{tier!r}. Every snapshot must be dropped."
            )
        self.counts.tiers = self.tiers.counts()


def _where(at: int | None) -> str:
    return "used up" if at is None else f"at step {at}"

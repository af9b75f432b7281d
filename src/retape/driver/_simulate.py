"""What a store in the background costs a run, in counts and without running anything.

The model is `AsyncStore`: one thread for each tier that is far, which obeys writes in
their order; `buffer` snapshots may wait; the schedule's next read begins when the one
before is done, and overtakes what waits. The reads are announced by the same code as in
a run.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from retape._errors import PlanError
from retape.driver._foresight import foretold
from retape.schedule import Advance, Restore, Reverse, Store, Sweep, Tape
from retape.schedule._action import Action
from retape.schedule._tier import StepCosts, Tier
from retape.storage import SnapshotStore


@dataclass(frozen=True, slots=True)
class Overlap:
    """The time of a run whose transfers overlap its computing.

    Attributes:
        compute: Steps, taped or not, and transfers to memory.
        transfer: All transfers to and from the disk.
        exposed: How long the run waits for transfers.
    """

    compute: float
    transfer: float
    exposed: float

    @property
    def share(self) -> float:
        """The exposed part of the whole time."""
        whole = self.compute + self.exposed
        return self.exposed / whole if whole else 0.0

    def __str__(self) -> str:
        return (
            f"{self.compute:g} computing, {self.transfer:g} transferring, of which "
            f"{self.exposed:g} are waited for: {self.share:.1%} of the run"
        )


def simulate(
    actions: Iterable[Action],
    tiers: Sequence[Tier],
    *,
    costs: StepCosts | None = None,
    buffer: int = 2,
) -> Overlap:
    """Find how much of its transfers a run in an `AsyncStore` waits for.

    Args:
        actions: A schedule.
        tiers: Its tiers, with what their transfers cost: `retape.storage.measure` tells
            them. The first is at hand, the others are written in the background.
        costs: What a step costs; by default one for each of its three parts.
        buffer: Snapshots that may wait to be written; 0 for no thread at all.

    Returns:
        The time in the unit of all these costs.

    Raises:
        PlanError: If the buffer cannot be, or the schedule has another tier.

    Examples:
        >>> import retape
        >>> from retape.driver import simulate
        >>> tiers = retape.Tier("memory", 5), retape.Tier("disk", 40, 16, 16)
        >>> schedule = retape.tiers(levels=tiers).schedule(1000)
        >>> behind = simulate(schedule, tiers)
        >>> behind.share < 0.05 < simulate(schedule, tiers, buffer=0).share
        True
    """
    if not isinstance(buffer, int) or buffer < 0:  # pyright: ignore
        raise PlanError(
            f"`buffer={buffer!r}` is not valid: pass a number of snapshots."
        )
    each = {tier.name: tier for tier in tiers}
    clock = _Clock(each, costs or StepCosts(), buffer)
    for action in foretold(actions, clock):
        clock.obey(action)
    return clock.end()


@dataclass(slots=True)
class _Clock(SnapshotStore[Any]):
    """A store that keeps nothing: it lets the time of one pass.

    Attributes:
        now: The time of the program.
        free: That at which the thread has done its work.
    """

    tiers: dict[str, Tier]
    costs: StepCosts
    buffer: int
    now: float = 0.0
    free: float = 0.0
    compute: float = 0.0
    transfer: float = 0.0
    waiting: deque[tuple[float, int, float]] = field(
        default_factory=deque[tuple[float, int, float]]
    )
    written: dict[int, float] = field(default_factory=dict[int, float])
    read: dict[int, float] = field(default_factory=dict[int, float])

    def obey(self, action: Action) -> None:
        """Let the time of an action pass."""
        of = self.costs
        if isinstance(action, Advance):
            self._spend((action.stop - action.start) * of.forward)
        elif isinstance(action, Reverse):
            self._spend((action.stop - action.start) * (of.tape + of.backward))
        elif isinstance(action, Tape):
            self._spend((action.stop - action.start) * of.tape)
            self._put(action.start, action.tier)
        elif isinstance(action, Store):
            self._put(action.step, action.tier)
        elif isinstance(action, Sweep):
            self._get(action.start, action.tier)
            self._spend((action.stop - action.start) * of.backward)
        elif isinstance(action, Restore):
            self._get(action.step, action.tier)

    @property
    def reads_ahead(self) -> bool:
        """Whether there is a thread."""
        return self.buffer > 0

    def is_near(self, tier: str) -> bool:
        """Whether a tier is at hand: the first one."""
        return tier == next(iter(self.tiers))

    def prefetch(self, step: int, slot: int, tier: str, *, tape: bool = False) -> bool:
        """Begin to read, as soon as the thread has done what it is at."""
        if self.is_near(tier):
            return False
        self._work_until(self.now)
        if any(waits == step for _, waits, _ in self.waiting):
            return True  # It is there while it waits to be written.
        self.free = max(self.free, self.now) + self._of(tier).read
        self.transfer += self._of(tier).read
        self.read[step] = self.free
        return True

    def end(self) -> Overlap:
        """Wait for what is left to write."""
        self._work_until(float("inf"))
        self.now = max(self.now, self.free)
        return Overlap(self.compute, self.transfer, self.now - self.compute)

    def _spend(self, time: float) -> None:
        self.now += time
        self.compute += time

    def _put(self, step: int, tier: str) -> None:
        write = self._of(tier).write
        if self.is_near(tier):
            self._spend(write)
            return
        self.transfer += write
        if not self.buffer:
            self.now += write
            self.free = self.now
            return
        self._work_until(self.now)
        while self._held() >= self.buffer:
            self.now = min(t for t in self.written.values() if t > self.now)
            self._work_until(self.now)
        self.waiting.append((self.now, step, write))
        self.read.pop(step, None)

    def _get(self, step: int, tier: str) -> None:
        read = self._of(tier).read
        if self.is_near(tier):
            self._spend(read)
            return
        if not self.buffer:
            self.transfer += read
            self.now += read
            return
        if step in self.read:
            self.now = max(self.now, self.read.pop(step))
            return
        # It waited when its reading could have begun: until it is written.
        while any(waits == step for _, waits, _ in self.waiting):
            self._write_one()
        self.now = max(self.now, self.written.get(step, self.now))

    def _of(self, tier: str) -> Tier:
        """A tier's costs."""
        if tier not in self.tiers:
            raise PlanError(
                f"the schedule has a tier {tier!r}, and `tiers` are "
                f"{', '.join(map(repr, self.tiers))}. Pass those of the schedule."
            )
        return self.tiers[tier]

    def _held(self) -> int:
        """Snapshots that wait, or are being written."""
        return len(self.waiting) + sum(t > self.now for t in self.written.values())

    def _work_until(self, time: float) -> None:
        """Write what the thread would have begun to write before that time."""
        while self.waiting and max(self.free, self.waiting[0][0]) < time:
            self._write_one()

    def _write_one(self) -> None:
        ready, step, write = self.waiting.popleft()
        self.free = max(self.free, ready) + write
        self.written[step] = self.free

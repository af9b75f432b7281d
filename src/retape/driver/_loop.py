"""Obeying one action at a time: the working capsule, the slots and the counting."""

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Generic, TypeAlias, TypeVar

from .._errors import MachineError, SnapshotError
from ..schedule import Action, Advance, Drop, Restore, Reverse, Store
from ..storage import DurableStore, Record, SnapshotStore
from ._machine import Machine
from ._progress import Progress
from ._report import Report
from ._verify import Verifier

C = TypeVar("C")
A = TypeVar("A")
R = TypeVar("R")

Slot: TypeAlias = tuple[str, int]


def _no_seconds() -> dict[str, float]:
    return dict.fromkeys(("forward", "recompute", "reverse", "storage"), 0.0)


@dataclass(slots=True)
class Loop(Generic[C, A, R]):
    """The state of a run between two actions.

    Attributes:
        machine: The program.
        store: Where snapshots go.
        working: The working capsule, and `at`, the step that it stands before.
        slots: What the schedule has put where; the store may have lost some of it.
        length: The number of steps, once known.
        left: Steps not reversed yet, once the length is known.
        label: What the run is, for durable stores.
        total: The work of the whole run, if it can be predicted.
        skipped: Work that an earlier process has done.
    """

    machine: Machine[C, A, R]
    store: SnapshotStore[C]
    working: C
    verifier: Verifier[C] | None = None
    watch: Callable[[Progress], None] | None = None
    label: str = ""
    at: int = 0
    length: int | None = None
    left: int | None = None
    total: int | None = None
    cotangent: A | None = None
    slots: dict[Slot, int] = field(default_factory=dict[Slot, int])
    advances: int = 0
    taped: int = 0
    stores: int = 0
    restores: int = 0
    reverses: int = 0
    longest: int = 0
    repaired: int = 0
    skipped: int = 0
    resumed: bool = False
    seconds: dict[str, float] = field(default_factory=_no_seconds)

    def obey(self, action: Action) -> None:
        """Do what an action says."""
        match action:
            case Advance(start, stop):
                self._expect(start)
                self.working = self.advance(self.working, start, stop)
                self.at = stop
            case Store(step, slot, tier):
                self._expect(step)
                self.keep(step, slot, tier, self.working)
            case Restore(step, slot, tier):
                self.working, self.at = self._fetch(step, slot, tier), step
                self.restores += 1
            case Drop(step, slot, tier):
                self.drop(step, slot, tier)
            case Reverse(start, stop):
                self._expect(start)
                self._reverse(start, stop)
        self.tell()

    def advance(self, capsule: C, start: int, stop: int) -> C:
        """Run the steps start, ..., stop - 1 of a known length."""
        began = perf_counter()
        step = start
        while step < stop:
            upto = self.verifier.next_stop(step, stop) if self.verifier else stop
            capsule, _ = self.machine.advance(capsule, upto - step)
            if self.verifier:
                self.verifier.check(step, upto, capsule)
            step = upto
        self.advances += stop - start
        self.spend("recompute" if self.reverses else "forward", began)
        return capsule

    def keep(self, step: int, slot: int, tier: str, capsule: C) -> None:
        """Store a capsule."""
        began = perf_counter()
        nbytes = self.machine.nbytes(capsule)
        self.store.put(step, slot, tier, capsule, nbytes)
        self.slots[tier, slot] = step
        self.stores += 1
        self.spend("storage", began)

    def drop(self, step: int, slot: int, tier: str) -> None:
        """Free a slot."""
        began = perf_counter()
        self.store.drop(step, slot, tier)
        del self.slots[tier, slot]
        self.spend("storage", began)

    def spend(self, phase: str, began: float) -> None:
        """Book the time since `began` under a phase."""
        self.seconds[phase] += perf_counter() - began

    def tell(self) -> None:
        """Call the watcher."""
        if self.watch:
            done = self.advances + self.taped + self.skipped
            swept = (self.length or 0) - (self.left or 0)
            self.watch(Progress(done, self.total, swept, self.length))

    def record(self) -> None:
        """Write the record of a durable store."""
        if isinstance(self.store, DurableStore):
            note = Record(self.length, self.left, self.cotangent, self.label)
            self.store.record(note)

    def _expect(self, step: int) -> None:
        if self.at != step:
            raise MachineError(
                f"the schedule goes on from step {step}, and the working capsule is at "
                f"step {self.at}. Check the schedule with `retape.schedule.replay`."
            )

    def _reverse(self, start: int, stop: int) -> None:
        began = perf_counter()
        steps = stop - start
        self.cotangent = self.machine.reverse(self.working, steps, self.cotangent)
        self.left = start
        self.taped += steps
        self.reverses += 1
        self.longest = max(self.longest, steps)
        self.spend("reverse", began)
        if isinstance(self.store, DurableStore) and self.store.record_due():
            began = perf_counter()
            self.record()
            self.spend("storage", began)

    def _fetch(self, step: int, slot: int, tier: str) -> C:
        """The capsule in a slot; recomputed from an earlier one if it is lost."""
        began = perf_counter()
        try:
            return self.store.get(step, slot, tier)
        except SnapshotError:
            self.repaired += 1
        finally:
            self.spend("storage", began)
        at, capsule, lost = self._earlier(step)
        # All that was lost on the way is put back as it is passed: where a process
        # died with hundreds of snapshots in memory, one pass restores them.
        for between, held_tier, held_slot in [*reversed(lost), (step, tier, slot)]:
            if at < between:
                capsule = self.advance(capsule, at, between)
                at = between
            self.store.drop(between, held_slot, held_tier)
            self.keep(between, held_slot, held_tier, capsule)
        self.repaired += len(lost)
        return capsule

    def _earlier(self, step: int) -> tuple[int, C, list[tuple[int, str, int]]]:
        """The latest readable state before `step`, and the lost ones in between."""
        held = [(at, tier, slot) for (tier, slot), at in self.slots.items()]
        lost: list[tuple[int, str, int]] = []
        for at, tier, slot in sorted(held, reverse=True):
            if at < step:
                try:
                    return at, self.store.get(at, slot, tier), lost
                except SnapshotError:
                    lost.append((at, tier, slot))
        return 0, self.machine.start(), lost

    def report(self) -> Report:
        """What was done, by this process."""
        return Report(
            length=self.length or 0,
            advances=self.advances,
            taped=self.taped,
            stores=self.stores,
            restores=self.restores,
            reverses=self.reverses,
            longest_stage=self.longest,
            peak_snapshots=self.store.peak_snapshots,
            peak_bytes=self.store.peak_bytes,
            repaired=self.repaired,
            resumed=self.resumed,
            seconds=dict(self.seconds),
        )

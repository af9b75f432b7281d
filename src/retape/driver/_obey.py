"""Obeying one action at a time: the working capsule, the slots and the counting."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from operator import index
from time import perf_counter
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from retape._errors import MachineError, StoreError
from retape.driver._machine import (
    KnownMachine,
    Machine,
    OverwritingMachine,
    PackingMachine,
    ResumedMachine,
    TapingMachine,
    cannot_tape,
)
from retape.driver._progress import Progress
from retape.driver._proof import Proof
from retape.driver._repair import fetch
from retape.driver._report import Report
from retape.driver._tier_meter import TierMeter
from retape.driver._verify import Verifier, reverse_checked
from retape.schedule import Advance, Drop, Restore, Reverse, Store, Sweep, Tape
from retape.schedule._action import Action
from retape.storage import Record, SnapshotStore
from retape.storage._base import is_durable

C = TypeVar("C")
A = TypeVar("A")
R = TypeVar("R")

Slot: TypeAlias = tuple[str, int]


class Reached(NamedTuple, Generic[A]):
    """Progress of the reversal: one value, so that Ctrl-C finds it old or new.

    Attributes:
        left: Steps not reversed yet, once the length is known.
        cotangent: That of the state before step `left`; `None` if no step is reversed.
    """

    left: int | None = None
    cotangent: A | None = None


@dataclass(slots=True)
class Loop(Generic[C, A, R]):
    """The state of a run between two actions.

    Attributes:
        machine: The program.
        store: Where snapshots go.
        working: The working capsule, `None` when used up; `at`, the step before which
            it stands.
        borrowed: The slot that holds the same object as `working`, if one may.
        slots: What the schedule has put where, by the step at which it begins; the
            store may have lost some of it.
        tapes: The slots that hold a tape, by the step at which it ends.
        length: The number of steps, once known.
        reached: How far the run is reversed; `None` during a stage, when the machine
            may be changing the cotangent in place.
        label: What the run is, for durable stores.
        limit: The `retape.interruptible` that the run heeds, if there is one.
        report: What this process has done so far.
        total: The work of the whole run in steps run, if it can be predicted.
        skipped: Work that an earlier process has done.
        tiers: What is on each tier, and what was put there.
        ahead: A step, and the capsule after it, where that has been run already.
        proof: What tells that this is the program which began the run, where a store
            outlives its process.
    """

    machine: Machine[C, A, R]
    store: SnapshotStore[C]
    working: C | None
    borrowed: Slot | None = None
    verifier: Verifier[C] | None = None
    watch: Callable[[Progress], None] | None = None
    label: str = ""
    at: int = 0
    length: int | None = None
    reached: Reached[A] | None = Reached()
    slots: dict[Slot, int] = field(default_factory=dict[Slot, int])
    tapes: dict[Slot, int] = field(default_factory=dict[Slot, int])
    resumed: bool = False
    limit: Any = None
    report: Report = field(default_factory=Report)
    total: int | None = None
    skipped: int = 0
    tiers: TierMeter = field(default_factory=TierMeter)
    ahead: tuple[int, C] | None = None
    durable: SnapshotStore[C] | None = field(init=False)
    proof: Proof[C, A] | None = field(init=False)
    _copy: Callable[[C], C] | None = field(init=False)
    _pack: Callable[[Any], Any] | None = field(init=False)
    _tapes: bool = field(init=False)
    _gives_copies: bool = field(init=False)

    def __post_init__(self) -> None:
        # Asked once: what a protocol asks at run time takes longer than an action.
        self.durable = self.store if is_durable(self.store) else None
        self.proof = None
        if self.durable is not None and isinstance(self.machine, KnownMachine):
            self.proof = Proof(self.machine, self.store)
        self._tapes = isinstance(self.machine, TapingMachine)
        self._gives_copies = self.store.gives_copies
        overwrites = isinstance(self.machine, OverwritingMachine)
        copy: Any = getattr(self.machine, "copy_capsule", None)
        self._copy = copy if overwrites else None
        pack: Any = getattr(self.machine, "to_store", None)
        self._pack = pack if isinstance(self.machine, PackingMachine) else None

    @property
    def cotangent(self) -> A | None:
        """That of the last stage reversed, if there is one."""
        return self.reached.cotangent if self.reached else None

    def obey(self, action: Action) -> None:
        """Do what an action says.

        Raises:
            MachineError: If it is none, or cannot be done here.
        """
        # Not `match`, which takes as long as all else that is done for a small step.
        if isinstance(action, Advance):
            start, stop = action.start, action.stop
            self.working = self.advance(self.take(start), start, stop)
            self.at = stop
        elif isinstance(action, Restore):
            self._restore(action.step, (action.tier, action.slot))
        elif isinstance(action, Reverse):
            self._reverse(action.start, action.stop)
        elif isinstance(action, Store):
            step = action.step
            self.keep(step, action.slot, action.tier, self.look(step))
        elif isinstance(action, Drop):
            self.drop(action.step, action.slot, action.tier)
        elif isinstance(action, Tape):
            start, stop = action.start, action.stop
            made, self.working = self.tape(self.take(start), start, stop)
            self.at = stop
            self.keep_tape(start, stop, action.slot, action.tier, made)
        elif isinstance(action, Sweep):  # pyright: ignore[reportUnnecessaryIsInstance]
            self._sweep(action.start, action.stop, action.slot, action.tier)
        else:
            raise MachineError(
                f"`{action!r}` in the schedule is not an action. Pass those of "
                "`retape.schedule`, such as `Advance(0, 5)`; `retape.interop` "
                "translates others."
            )
        if self.watch:
            self.tell()

    def _restore(self, step: int, slot: Slot) -> None:
        self.working, self.at, self.ahead = None, step, None
        self.working = fetch(self, step, slot)
        self.borrowed = None if self._gives_copies else slot
        self.tiers.read(slot[0])
        self.report.restores += 1

    def went_on(self) -> None:
        """Note that an earlier process has begun this run, and tell the machine."""
        self.resumed = True
        if isinstance(self.machine, ResumedMachine):
            self.machine.resume(self.at, self.cotangent is not None)

    def look(self, step: int) -> C:
        """The working capsule, which must stand before `step`."""
        if self.at != step or self.working is None:
            where = "used up" if self.working is None else f"at step {self.at}"
            raise MachineError(
                f"the schedule goes on from step {step}, and the working capsule is "
                f"{where}. Check the schedule with `retape.schedule.replay`."
            )
        return self.working

    def take(self, step: int) -> C:
        """The same, given away: the loop must not keep it alive while it is used.

        A machine may overwrite it, unless it is in a slot that is still needed.
        """
        capsule = self.look(step)
        self.working = None
        if self.borrowed is not None:
            if self.slots.get(self.borrowed) == step:
                capsule = self.copied(capsule)
            self.borrowed = None
        return capsule

    def copied(self, capsule: C) -> C:
        """The same in memory of its own, where the machine overwrites capsules."""
        return capsule if self._copy is None else self._copy(capsule)

    def packed(self, tree: Any) -> Any:
        """A capsule or a cotangent in the form in which a store is given it."""
        return tree if self._pack is None else self._pack(tree)

    def advance(self, capsule: C, start: int, stop: int) -> C:
        """Run the steps start, ..., stop - 1 of a known length."""
        began = perf_counter()
        step = start
        if self.ahead is not None:
            (at, after), self.ahead = self.ahead, None
            if at == start:
                capsule, step = after, start + 1
                self.report.checked -= 1
        while step < stop:
            upto = self.verifier.next_stop(step, stop) if self.verifier else stop
            capsule, _ = self.machine.advance(capsule, upto - step)
            if self.verifier:
                self.verifier.check(step, upto, capsule)
            step = upto
        self.report.advances += stop - start
        self.spend(self.phase, began)
        return capsule

    def _step_ahead(self, step: int, capsule: C) -> tuple[C, C]:
        """The capsule in memory that the step does not touch, and the one after it.

        That is kept for the next advance.
        """
        began = perf_counter()
        kept, self.ahead = self.copied(capsule), None
        if self.working is capsule:
            self.working, self.borrowed = kept, None
        after, made = self.machine.advance(capsule, 1)
        if self.verifier:
            self.verifier.check(step, step + 1, after)
        if index(made):
            self.ahead = step, after
            self.report.checked += 1
        self.spend(self.phase, began)
        return kept, after

    def signed(self, step: int, capsule: C) -> C:
        """A capsule for the store, which tells what the step from it does."""
        # What a codec with a loss gives back has other bits than what it was given.
        if self.proof is None or self.store.is_lossy:
            return capsule
        self.proof.old.discard(step)
        return self.proof.machine.sign(*self._step_ahead(step, capsule))

    def confirm(self, step: int, capsule: C) -> C:
        """A capsule of the store's; one of an earlier process is compared."""
        if self.proof is None or step not in self.proof.old:
            return capsule
        kept, after = self._step_ahead(step, capsule)
        self.proof.confirm(step, kept, after)
        return kept

    @property
    def phase(self) -> str:
        """The phase that an advanced step is counted in."""
        return "forward" if self.cotangent is None else "recompute"

    def keep(self, step: int, slot: int, tier: str, capsule: C) -> C:
        """Store a capsule, which the program may overwrite; the one to go on from."""
        capsule = self.signed(step, capsule)
        own = capsule if self._gives_copies else self.copied(capsule)
        self.put(step, slot, tier, own)
        return capsule

    def put(self, step: int, slot: int, tier: str, capsule: C) -> None:
        """Store a capsule as it is."""
        began = perf_counter()
        nbytes = self.machine.nbytes(capsule)
        self.store.put(step, slot, tier, self.packed(capsule), nbytes)
        self.slots[tier, slot] = step
        self.report.stores += 1
        self.tiers.wrote(tier)
        self.spend("storage", began)

    def tape(self, capsule: C, start: int, stop: int) -> tuple[Any, C]:
        """Run a stage with a tape, for a slot: the tape, and the capsule after it."""
        if not self._tapes:
            raise cannot_tape(self.machine)
        self.ahead = None
        began = perf_counter()
        machine: Any = self.machine
        made: tuple[Any, C] = machine.tape(capsule, stop - start)
        if self.verifier:
            self.verifier.check(start, stop, made[1])
        self.report.taped += stop - start
        self.spend(self.phase, began)
        return made

    def keep_tape(self, start: int, stop: int, slot: int, tier: str, made: Any) -> None:
        """Store a tape."""
        began = perf_counter()
        machine: Any = self.machine
        nbytes = machine.tape_nbytes(made)
        self.store.put(start, slot, tier, made, nbytes, tape=True)
        self.slots[tier, slot], self.tapes[tier, slot] = start, stop
        self.report.kept_tapes += 1
        self.tiers.wrote(tier)
        self.spend("storage", began)

    def drop(self, step: int, slot: int, tier: str) -> None:
        """Free a slot."""
        began = perf_counter()
        tape = self.tapes.pop((tier, slot), None) is not None
        self.store.drop(step, slot, tier, tape=tape)
        del self.slots[tier, slot]
        self.tiers.freed(tier)
        self.spend("storage", began)

    def move(self, step: int, near: Slot, far: Slot) -> None:
        """Put what is in one slot into another, on another tier."""
        # One that was lost with an earlier process is made again.
        capsule = fetch(self, step, near)
        began = perf_counter()
        # First out, then in: a store of one kind knows a snapshot by its step.
        self.store.drop(step, near[1], near[0])
        del self.slots[near]
        nbytes = self.machine.nbytes(capsule)
        self.store.put(step, far[1], far[0], capsule, nbytes)
        self.slots[far] = step
        self.tiers.freed(near[0])
        self.tiers.read(near[0])
        self.tiers.wrote(far[0])
        self.spend("storage", began)

    def tell(self) -> None:
        """Call the watcher."""
        if self.watch:
            left = self.reached.left if self.reached else None
            swept = 0 if left is None else (self.length or 0) - left
            self.watch(Progress(self.done, self.total, swept, self.length))

    def record(self) -> None:
        """Write the record of a durable store, unless a stage is being reversed."""
        if self.durable is not None and self.reached is not None:
            left, cotangent = self.reached
            found: Any = cotangent
            if self.proof is not None and cotangent is not None:
                found = self.proof.machine.recorded(cotangent)
            given = self.length, left, self.packed(found), self.label
            self.durable.record(Record(*given))

    def release(self) -> None:
        """Free all slots of a run that failed, with no error beside the one it has."""
        for (tier, slot), step in list(self.slots.items()):
            with suppress(StoreError):
                self.drop(step, slot, tier)

    def _reverse(self, start: int, stop: int) -> None:
        cotangent = self._turn(stop)
        capsule = self.take(start)
        began = perf_counter()
        if self.verifier and cotangent is not None:
            cotangent = reverse_checked(
                self.machine, self.verifier, capsule, (start, stop), cotangent
            )
        else:
            cotangent = self.machine.reverse(capsule, stop - start, cotangent)
        self.report.taped += stop - start
        self._swept(start, stop, cotangent, began)

    def _turn(self, stop: int) -> A | None:
        """The cotangent before step `stop`, handed to the machine for a stage."""
        reached = self.reached or Reached[A]()
        left = self.length if reached.left is None else reached.left
        if left is not None and stop != left:
            raise MachineError(
                f"the schedule reverses a stage that ends at step {stop}, and {left} "
                "steps are left. Pass a schedule of the machine's length."
            )
        self.reached = self.ahead = None
        return reached.cotangent

    def _sweep(self, start: int, stop: int, slot: int, tier: str) -> None:
        made = fetch(self, start, (tier, slot))
        cotangent = self._turn(stop)
        began = perf_counter()
        machine: Any = self.machine
        cotangent = machine.sweep(made, stop - start, cotangent)
        self._swept(start, stop, cotangent, began)

    def _swept(self, start: int, stop: int, cotangent: A, began: float) -> None:
        self.reached, self.working = Reached(start, cotangent), None
        self.report.reverses += 1
        self.report.longest_stage = max(self.report.longest_stage, stop - start)
        self.spend("reverse", began)
        if self.durable is not None and self.durable.record_due():
            began = perf_counter()
            self.record()
            self.spend("storage", began)

    @property
    def done(self) -> int:
        """Steps run, with those of earlier processes."""
        return self.report.advances + self.report.taped + self.skipped

    def spend(self, phase: str, began: float) -> None:
        """Book the time since `began` under a phase."""
        self.report.seconds[phase] += perf_counter() - began

    def finished(self) -> Report:
        """The report of this process's work, with what is known at the end."""
        store = self.store
        return replace(
            self.report,
            length=self.length or 0,
            peak_snapshots=store.peak_snapshots,
            peak_bytes=store.peak_bytes,
            resumed=self.resumed,
            tiers=self.tiers.counts(),
        )

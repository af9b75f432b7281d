"""The one loop in the library that obeys actions: a run, and how each is obeyed.

    plan, record  ->  the actions that remain  ->  obey  ->  machine, store, report
    `_run`            `_actions`                   `Run`

A run that goes through, one whose length only its end tells, and one that waits at its
end for a seed are this loop; the last is stopped before the first `Reverse`.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from operator import index
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias, TypeVar

from retape._errors import MachineError, StoreError
from retape.driver._interrupt import interruptible
from retape.driver._machine import (
    KnownMachine,
    OverwritingMachine,
    PackingMachine,
    ResumedMachine,
    TapingMachine,
    cannot_tape,
    offers,
)
from retape.driver._progress import Progress
from retape.driver._report import Report
from retape.driver._resume import Proof, fetch, signed
from retape.driver._verify import Verifier, reverse_checked
from retape.schedule import Advance, Drop, Restore, Reverse, Store, Sweep, Tape
from retape.schedule._action import Action
from retape.schedule._cost import TierMeter
from retape.storage import Place, Record, SnapshotStore
from retape.storage._base import is_durable

T = TypeVar("T", bound=Action)

Slot: TypeAlias = tuple[str, int]


class Reached(NamedTuple):
    """Progress of the reversal: one value, so that Ctrl-C finds it old or new.

    Attributes:
        left: Steps not reversed yet, once the length is known.
        cotangent: That of the state before step `left`; `None` if no step is reversed.
    """

    left: int | None = None
    cotangent: Any = None


@dataclass(slots=True)
class Run:
    """The state of a run between two actions, and how each is obeyed.

    What capsules, tapes and cotangents are only the machine knows.

    Attributes:
        machine: The program, a `Machine`.
        store: Where snapshots go.
        verifier: What compares states that are made again, if that is asked for.
        watch: Who is told of each action.
        label: What the run is, for durable stores.
        limit: The `retape.interruptible` that the run heeds, if there is one.
        working: The working capsule, `None` when used up; `at`, the step before which
            it stands.
        borrowed: The slot that holds the same object as `working`, if one may.
        behind: On the way to an end that is not known, the capsule before the last
            stage that was begun, and its step: whether it is kept is not decided yet.
        ahead: A step, and the capsule after it, where that has been run already.
        slots: What the schedule has put where; the store may have lost some of it.
        tapes: The slots that hold a tape, by the step at which it ends.
        length: The number of steps, once known.
        reached: How far the run is reversed; `None` during a stage, when the machine
            may be changing the cotangent in place.
        rest: The actions that remain.
        report: What this process has done so far.
        tiers: What is on each tier, and what was put there.
        total: The work of the whole run in steps run, if it can be predicted.
        skipped: Work that an earlier process has done.
        durable: The store, if it outlives its process.
        proof: What tells that this is the program which began the run, then.
    """

    machine: Any
    store: SnapshotStore[Any]
    verifier: Verifier[Any] | None = None
    watch: Callable[[Progress], None] | None = None
    label: str = ""
    limit: interruptible | None = None
    working: Any = field(init=False)
    at: int = 0
    borrowed: Slot | None = None
    behind: tuple[int, Any] | None = None
    ahead: tuple[int, Any] | None = None
    slots: dict[Slot, Place] = field(default_factory=dict[Slot, Place])
    tapes: dict[Slot, int] = field(default_factory=dict[Slot, int])
    length: int | None = field(init=False)
    reached: Reached | None = Reached()
    rest: Iterator[Action] = field(init=False)
    report: Report = field(default_factory=Report)
    tiers: TierMeter = field(default_factory=TierMeter)
    total: int | None = None
    skipped: int = 0
    durable: SnapshotStore[Any] | None = None
    proof: Proof | None = None
    _copy: Callable[[Any], Any] | None = None
    _pack: Callable[[Any], Any] | None = None
    _tapes: bool = field(init=False)
    _gives_copies: bool = field(init=False)

    def __post_init__(self) -> None:
        # Asked once: that takes as long as an action.
        machine = self.machine
        self.working, self.length = machine.start(), machine.length()
        if is_durable(self.store):
            self.durable = self.store
            if offers(machine, KnownMachine):
                self.proof = Proof()
        if offers(machine, OverwritingMachine):
            self._copy = machine.copy_capsule
        if offers(machine, PackingMachine):
            self._pack = machine.to_store
        self._tapes = offers(machine, TapingMachine)
        self._gives_copies = self.store.gives_copies

    def go(self, until: type[T] | None = None) -> T | None:
        """Obey the actions that remain, up to the first of a kind if one is named."""
        for action in self.rest:
            if until is not None and isinstance(action, until):
                self.rest = chain([action], self.rest)
                return action
            self.obey(action)
        return None

    def obey(self, action: Action) -> None:
        """Do what an action says.

        Raises:
            MachineError: If it is none, or cannot be done here.
        """
        # Not `match`, which takes as long as all else that is done for a small step.
        if isinstance(action, Advance):
            start, stop = action.start, action.stop
            self.working, self.at = self.advance(self.take(start), start, stop)
        elif isinstance(action, Restore):
            self._restore(Place(action.step, action.slot, action.tier))
        elif isinstance(action, Reverse):
            self._reverse(action.start, action.stop)
        elif isinstance(action, Store):
            place = Place(action.step, action.slot, action.tier)
            self.keep(place, self.look(place.step))
        elif isinstance(action, Drop):
            is_tape = (action.tier, action.slot) in self.tapes
            self.drop(Place(action.step, action.slot, action.tier, is_tape))
        elif isinstance(action, Tape):
            start, stop = action.start, action.stop
            tape, self.working = self.tape(self.take(start), start, stop)
            self.at = stop
            self.put(Place(start, action.slot, action.tier, True), tape, stop)
        elif isinstance(action, Sweep):  # pyright: ignore[reportUnnecessaryIsInstance]
            place = Place(action.start, action.slot, action.tier, True)
            self._sweep(place, action.stop)
        else:
            raise MachineError(
                f"`{action!r}` in the schedule is not an action. Pass those of "
                "`retape.schedule`, such as `Advance(0, 5)`; `retape.interop` "
                "translates others."
            )
        if self.watch:
            self.tell()

    # The working capsule, and what goes on from it.

    def look(self, step: int) -> Any:
        """The working capsule, which must stand before `step`."""
        if self.at != step or self.working is None:
            where = "used up" if self.working is None else f"at step {self.at}"
            raise MachineError(
                f"the schedule goes on from step {step}, and the working capsule is "
                f"{where}. Check the schedule with `retape.schedule.replay`."
            )
        return self.working

    def take(self, step: int) -> Any:
        """The same, given away: the run must not keep it alive while it is used.

        A machine may overwrite it, unless it is in a slot that is still needed.
        """
        capsule = self.look(step)
        self.working = None
        if self.borrowed is not None:
            held = self.slots.get(self.borrowed)
            if held is not None and held.step == step:
                capsule = self.copied(capsule)
            self.borrowed = None
        return capsule

    def copied(self, capsule: Any) -> Any:
        """The same in memory of its own, where the machine overwrites capsules."""
        return capsule if self._copy is None else self._copy(capsule)

    def advance(self, capsule: Any, start: int, stop: int) -> tuple[Any, int]:
        """Run the steps from `start` on: the capsule after them, and its step.

        That is `stop`, or the end of a run whose length is not known.
        """
        began, step = perf_counter(), start
        if self.ahead is not None:
            (at, after), self.ahead = self.ahead, None
            if at == start:
                capsule, step = after, start + 1
                self.report.checked -= 1
        while step < stop:
            upto = self.verifier.next_stop(step, stop) if self.verifier else stop
            capsule, made = self.machine.advance(capsule, upto - step)
            # A count that lies on a device is waited for only where it may be less.
            stood, step = step, upto if self.length is not None else step + index(made)
            if step < upto:
                break
            if self.verifier:
                self.verifier.check(stood, upto, capsule)
        self.report.advances += step - start
        self.spend(self.phase, began)
        return capsule, step

    def tape(self, capsule: Any, start: int, stop: int) -> tuple[Any, Any]:
        """Run a stage with a tape, for a slot: the tape, and the capsule after it."""
        if not self._tapes:
            raise cannot_tape(self.machine)
        self.ahead = None
        began = perf_counter()
        made: tuple[Any, Any] = self.machine.tape(capsule, stop - start)
        if self.verifier:
            self.verifier.check(start, stop, made[1])
        self.report.taped += stop - start
        self.spend(self.phase, began)
        return made

    # Slots.

    def keep(self, place: Place, capsule: Any) -> Any:
        """Store a capsule, which the program may overwrite; the one to go on from."""
        capsule = signed(self, place.step, capsule)
        self.put(place, capsule if self._gives_copies else self.copied(capsule))
        return capsule

    def put(self, place: Place, value: Any, stop: int | None = None) -> None:
        """Store a capsule as it is, or the tape of the steps up to `stop`."""
        began, machine = perf_counter(), self.machine
        if stop is None:
            nbytes = machine.nbytes(value)
            self.store.put(place, self.packed(value), nbytes)
            self.report.stores += 1
        else:
            nbytes = machine.tape_nbytes(value)
            self.store.put(place, value, nbytes)
            self.report.kept_tapes += 1
        self.holds(place, stop)
        self.tiers.wrote(place.tier)
        self.spend("storage", began)

    def holds(self, place: Place, stop: int | None = None) -> None:
        """Note what a slot holds: a state, or the tape of the steps up to `stop`."""
        self.slots[place.where] = place
        if stop is not None:
            self.tapes[place.where] = stop

    def free(self, place: Place) -> None:
        """Note that a slot is free."""
        self.tapes.pop(place.where, None)
        del self.slots[place.where]
        self.tiers.freed(place.tier)

    def packed(self, tree: Any) -> Any:
        """A capsule or a cotangent in the form in which a store is given it."""
        return tree if self._pack is None else self._pack(tree)

    def _restore(self, place: Place) -> None:
        self.working, self.at, self.ahead = None, place.step, None
        self.working = fetch(self, place)
        self.borrowed = None if self._gives_copies else place.where
        self.tiers.read(place.tier)
        self.report.restores += 1

    def drop(self, place: Place) -> None:
        """Free a slot."""
        began = perf_counter()
        self.store.drop(place)
        self.free(place)
        self.spend("storage", began)

    def release(self) -> None:
        """Free all slots of a run that failed, with no error beside the one it has."""
        for place in list(self.slots.values()):
            with suppress(StoreError):
                self.drop(place)

    # The way back.

    @property
    def cotangent(self) -> Any:
        """That of the last stage reversed, if there is one."""
        return self.reached.cotangent if self.reached else None

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

    def _sweep(self, place: Place, stop: int) -> None:
        start, tape = place.step, fetch(self, place)
        cotangent = self._turn(stop)
        began = perf_counter()
        cotangent = self.machine.sweep(tape, stop - start, cotangent)
        self._swept(start, stop, cotangent, began)

    def _turn(self, stop: int) -> Any:
        """The cotangent before step `stop`, handed to the machine for a stage."""
        reached = self.next_to_reverse(stop)
        self.reached = self.ahead = None
        return reached.cotangent

    def next_to_reverse(self, stop: int) -> Reached:
        """What is reached, of which a stage that ends at step `stop` is the next.

        Raises:
            MachineError: If another one is.
        """
        reached = self.reached or Reached()
        left = self.length if reached.left is None else reached.left
        if left is not None and stop != left:
            raise MachineError(
                f"the schedule reverses a stage that ends at step {stop}, and {left} "
                "steps are left. Pass a schedule of the machine's length."
            )
        return reached

    def _swept(self, start: int, stop: int, cotangent: Any, began: float) -> None:
        self.reached, self.working = Reached(start, cotangent), None
        self.report.reverses += 1
        self.report.longest_stage = max(self.report.longest_stage, stop - start)
        self.spend("reverse", began)
        if self.durable is not None and self.durable.record_due():
            began = perf_counter()
            self.record()
            self.spend("storage", began)

    # A run that another process has begun, or will go on with.

    def went_on(self, left: int | None = None, cotangent: Any = None) -> None:
        """Note where an earlier process has left this run, and tell the machine."""
        if cotangent is not None:
            self.reached = Reached(left, cotangent)
        self.report.resumed = True
        if offers(self.machine, ResumedMachine):
            self.machine.resume(self.at, self.cotangent is not None)

    def record(self) -> None:
        """Write the record of a durable store, unless a stage is being reversed."""
        if self.durable is not None and self.reached is not None:
            left, found = self.reached
            if self.proof is not None and found is not None:
                found = self.machine.recorded(found)
            given = self.length, left, self.packed(found), self.label
            self.durable.record(Record(*given))

    # What is told.

    @property
    def phase(self) -> str:
        """The phase that an advanced step is counted in."""
        return "forward" if self.cotangent is None else "recompute"

    def spend(self, phase: str, began: float) -> None:
        """Book the time since `began` under a phase."""
        self.report.seconds[phase] += perf_counter() - began

    def tell(self) -> None:
        """Call the watcher."""
        if self.watch:
            done = self.report.advances + self.report.taped + self.skipped
            left = self.reached.left if self.reached else None
            swept = 0 if left is None else (self.length or 0) - left
            self.watch(Progress(done, self.total, swept, self.length))

"""The one loop in the library that obeys actions."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Generic, NamedTuple, Protocol, TypeVar, assert_never

from .._errors import MachineError
from ..schedule import Action, Advance, Drop, Restore, Reverse, Store
from ..storage import MemoryStore, SnapshotStore
from ._machine import Machine
from ._report import Report

C = TypeVar("C")
A = TypeVar("A")
R = TypeVar("R")


class Outcome(NamedTuple, Generic[R]):
    """What `run` returns."""

    result: R
    report: Report


class Planner(Protocol):
    """The part of a plan that the driver uses."""

    def schedule(
        self, n: int, capsule_bytes: int | None, tape_bytes: int | None
    ) -> Iterable[Action]: ...


def run(
    machine: Machine[C, A, R],
    plan: Planner | Iterable[Action],
    *,
    store: SnapshotStore[C] | None = None,
    tape_bytes: int | None = None,
) -> Outcome[R]:
    """Reverse a machine under a plan.

    Args:
        machine: The program.
        plan: A plan, or a stream of actions made for the machine's length.
        store: Where snapshots go; by default a `MemoryStore` of its own.
        tape_bytes: What taping one step takes, for plans that count bytes.

    Returns:
        The machine's result and a `Report`.

    Example:
        >>> import retape
        >>> from retape.driver import ToyMachine, run
        >>> outcome = run(ToyMachine(100), retape.fixed_space(snapshots=3))
        >>> outcome.report.advances, outcome.report.peak_snapshots
        (490, 3)
    """
    actions = _actions(machine, plan, tape_bytes)
    loop = _Loop(machine, MemoryStore[C]() if store is None else store, machine.start())
    for action in actions:
        loop.obey(action)
    if loop.cotangent is None:
        raise MachineError(
            "the stream of actions ended without a `Reverse`: there is no cotangent. "
            "Pass a schedule of the machine's length."
        )
    return Outcome(machine.finish(loop.cotangent), loop.report())


def _actions(
    machine: Machine[C, A, R],
    plan: Planner | Iterable[Action],
    tape_bytes: int | None,
) -> Iterable[Action]:
    if isinstance(plan, Iterable):
        return plan
    length = machine.length()
    if length is None:
        raise MachineError("machines of unknown length are not driven yet")
    capsule_bytes = machine.nbytes(machine.start()) if tape_bytes is not None else None
    return plan.schedule(length, capsule_bytes, tape_bytes)


@dataclass(slots=True)
class _Loop(Generic[C, A, R]):
    machine: Machine[C, A, R]
    store: SnapshotStore[C]
    working: C
    cotangent: A | None = None
    advances: int = 0
    taped: int = 0
    stores: int = 0
    restores: int = 0
    reverses: int = 0
    longest: int = 0
    seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(
            ("forward", "recompute", "reverse", "storage"), 0.0
        )
    )

    def obey(self, action: Action) -> None:
        began = perf_counter()
        match action:
            case Advance(start, stop):
                self.working, _ = self.machine.advance(self.working, stop - start)
                self.advances += stop - start
                phase = "recompute" if self.reverses else "forward"
            case Store(step, slot, tier):
                nbytes = self.machine.nbytes(self.working)
                self.store.put(step, slot, tier, self.working, nbytes)
                self.stores += 1
                phase = "storage"
            case Restore(step, slot, tier):
                self.working = self.store.get(step, slot, tier)
                self.restores += 1
                phase = "storage"
            case Drop(step, slot, tier):
                self.store.drop(step, slot, tier)
                phase = "storage"
            case Reverse(start, stop):
                self._reverse(stop - start)
                phase = "reverse"
            case _:
                assert_never(action)
        self.seconds[phase] += perf_counter() - began

    def _reverse(self, steps: int) -> None:
        self.cotangent = self.machine.reverse(self.working, steps, self.cotangent)
        self.taped += steps
        self.reverses += 1
        self.longest = max(self.longest, steps)

    def report(self) -> Report:
        return Report(
            length=self.taped,
            advances=self.advances,
            taped=self.taped,
            stores=self.stores,
            restores=self.restores,
            reverses=self.reverses,
            longest_stage=self.longest,
            peak_snapshots=self.store.peak_snapshots,
            peak_bytes=self.store.peak_bytes,
            seconds=dict(self.seconds),
        )

"""`check_machine`: does a machine keep the laws that the driver relies on?"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from retape._errors import MachineError
from retape.driver import Machine, run
from retape.driver._machine import (
    METHODS,
    OverwritingMachine,
    TapingMachine,
    offers,
)
from retape.driver._machine import check_machine as check_methods
from retape.schedule import Schedule
from retape.storage import SnapshotStore
from retape.testing._laws import maker_of, tried
from retape.testing._machine_laws import LAWS, OVERWRITING_LAWS, TAPING_LAWS
from retape.testing._probe import Probe

_LABEL = "a check"
_CRASHES = (0, 1, 2, 3, 5, 8, 13)
"""After so many calls of the machine a run is made to die."""


def check_machine(
    machine: Machine[Any, Any, Any] | Callable[[], Machine[Any, Any, Any]],
    *,
    store: Callable[[], SnapshotStore[Any]] | None = None,
    stage: int | None = None,
    view: Callable[[Any], Any] | None = None,
) -> tuple[str, ...]:
    """Try the laws of machines on one; a law that is broken is an error that says so.

    Let the run be short, between 5 and some hundred steps: it is reversed about fifty
    times, and once in a single stage.

    Args:
        machine: A machine; or a function that makes one, which is then called for every
            run, as another process would.
        store: A function that makes a durable store, such as a `DiskStore`, always at
            the same place. Runs are then made to die in it, and taken up again. The
            place is emptied.
        stage: The most steps that the machine can reverse at once; by default all.
        view: From a capsule, a cotangent or a result to a tree of arrays and plain
            values that shows all of it, and may round, for machines that add in another
            order when a stage is longer. Without it they are trees themselves, of what
            a state may consist of.

    Returns:
        The laws that were tried, a sentence each.

    Raises:
        MachineError: If a law is broken, or the machine lacks a method.

    Examples:
        >>> from retape.driver import ToyMachine
        >>> from retape.testing import check_machine
        >>> laws = check_machine(ToyMachine(17))
        >>> laws[5]
        'Steps that are run in two parts give the state that they give in one.'

        A machine whose step reads what it should not:

        >>> class Clocked(ToyMachine):
        ...     def advance(self, capsule, steps):
        ...         after, made = super().advance(capsule, steps)
        ...         return type(after)(after.step, after.value + self.advanced), made
        >>> check_machine(Clocked(17))
        Traceback (most recent call last):
            ...
        retape._errors.MachineError: `Clocked` breaks a law of machines. The law:
        Running the same steps again from the same state gives the same state. But 1
        steps from step 0 gave two different states. See `retape.driver.Machine`.
    """
    make = maker_of(machine, lambda one: all(hasattr(one, name) for name in METHODS))
    found = make()
    check_methods(found)
    probe = Probe(make, view, stage)
    laws = LAWS + (TAPING_LAWS if offers(found, TapingMachine) else ())
    if offers(found, OverwritingMachine):
        laws += OVERWRITING_LAWS

    def broken(wrong: str) -> MachineError:
        return MachineError(
            f"`{type(found).__name__}` breaks a law of machines. The law: {wrong}. See "
            "`retape.driver.Machine`."
        )

    done = [tried(law, lambda law=law: law(probe), broken) for law in laws]
    if store is not None:
        dies = a_run_that_died_is_taken_up
        done.append(tried(dies, lambda: dies(probe, store), broken))
    return tuple(done)


def a_run_that_died_is_taken_up(
    probe: Probe, store: Callable[[], SnapshotStore[Any]]
) -> Iterator[str]:
    """A run that died is taken up by another process and has the same result."""
    n, stage = probe.steps, min(probe.longest, max(1, probe.steps // 6))
    plan = Schedule(n, 3, stage)

    def result_of(machine: Any) -> Any:
        return probe.seen(run(machine, plan, store=store(), label=_LABEL).result)

    store().clear()
    undisturbed = result_of(probe.make())
    for calls in _CRASHES:
        store().clear()
        try:
            result_of(_Mortal(probe.make(), calls))
        except _Death:
            if undisturbed != result_of(probe.make()):
                yield f"a run that died after {calls} calls had another result"
    # What is done has left its result.
    if undisturbed != result_of(probe.make()):
        yield "a run that was done gave another result when it was called again"
    store().clear()


class _Death(Exception):
    """The end of a process, as a test can have it."""


@dataclass(slots=True)
class _Mortal:
    """A machine that dies after some calls."""

    machine: Any
    calls: int

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.machine, name)
        if name not in ("advance", "reverse"):
            return found

        def counted(*arguments: Any) -> Any:
            if self.calls == 0:
                raise _Death
            self.calls -= 1
            return found(*arguments)

        return counted

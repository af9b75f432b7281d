"""The laws of machines, each as a function that tries it with a `Probe` (`_laws`)."""

from collections.abc import Callable, Iterator
from operator import index
from typing import Any, TypeAlias

from retape.driver import run
from retape.driver._machine import TapingMachine, offers
from retape.plan._constructors import fixed_space
from retape.schedule import Mixed, Schedule
from retape.testing._probe import Probe, is_count, shown

Law: TypeAlias = Callable[[Probe], Iterator[str]]


def the_length_is_a_number(probe: Probe) -> Iterator[str]:
    """`length` tells the same each time: a number of steps, or `None`."""
    first, second = probe.machine.length(), probe.machine.length()
    if first != second:
        yield f"it told {first}, and then {second}"
    if first is not None and index(first) < 0:
        yield f"it told {first}"


def the_start_is_a_state(probe: Probe) -> Iterator[str]:
    """`start` gives the same state each time, whatever was run in between."""
    before = probe.seen(probe.machine.start())
    if before != probe.seen(probe.machine.start()):
        yield "the second call gave another state"
    if probe.steps:
        probe.machine.advance(probe.machine.start(), probe.steps)
        if before != probe.seen(probe.machine.start()):
            yield "after a run it gave another state"


def advances_are_deterministic(probe: Probe) -> Iterator[str]:
    """Running the same steps again from the same state gives the same state."""
    for start, steps in _stretches(probe):
        capsule = probe.at(start)
        first = probe.seen(probe.machine.advance(capsule, steps)[0])
        again = probe.seen(probe.machine.advance(capsule, steps)[0])
        if first != again:
            yield f"{steps} steps from step {start} gave two different states"


def advances_compose(probe: Probe) -> Iterator[str]:
    """Steps that are run in two parts give the state that they give in one."""
    for start, steps in _stretches(probe):
        if steps < 2:
            continue
        part = max(1, steps // 3)
        begin = probe.at(start)
        whole = probe.seen(probe.machine.advance(begin, steps)[0])
        between = probe.machine.advance(begin, part)[0]
        after = probe.machine.advance(between, steps - part)[0]
        if whole != probe.seen(after):
            yield (
                f"{part} steps from step {start} and then {steps - part} more gave "
                f"another state than {steps} at once"
            )


def advances_are_counted(probe: Probe) -> Iterator[str]:
    """`advance` returns how many steps it made: fewer only where the program ends."""
    for start, steps in _stretches(probe):
        _, made = probe.machine.advance(probe.at(start), steps)
        if index(made) != steps:
            yield f"of {steps} steps from step {start} it counted {index(made)}"
    if probe.machine.length() is None:
        end, made = probe.machine.advance(probe.machine.start(), probe.steps + 3)
        if index(made) != probe.steps:
            yield f"a run of {probe.steps} steps was counted as {index(made)}"
        _, more = probe.machine.advance(end, 1)
        if index(more) != 0:
            yield f"after the end it counted {index(more)} steps more"


def capsules_are_values(probe: Probe) -> Iterator[str]:
    """No method changes a capsule that it is given: a snapshot may be used again."""
    for start in _places(probe):
        steps = min(probe.longest, probe.steps - start)
        capsule, late = probe.at(start), _after(probe, start + steps)
        before = probe.seen(capsule)
        probe.machine.advance(capsule, steps)
        if before != probe.seen(capsule):
            yield f"`advance` changed the capsule before step {start}"
        probe.machine.reverse(capsule, steps, late)
        if before != probe.seen(capsule):
            yield f"`reverse` changed the capsule before step {start}"
        if offers(probe.machine, TapingMachine):
            probe.machine.tape(capsule, steps)
            if before != probe.seen(capsule):
                yield f"`tape` changed the capsule before step {start}"


def stages_compose(probe: Probe) -> Iterator[str]:
    """However a run is cut into stages, the cotangent of its start is the same."""
    found = [(cuts, probe.cotangent(cuts)) for cuts in probe.partitions()]
    first = probe.seen(found[0][1])
    for cuts, cotangent in found[1:]:
        if first != probe.seen(cotangent):
            yield (
                f"stages that end at {shown(found[0][0], probe)} gave another "
                f"cotangent than stages that end at {shown(cuts, probe)}"
            )


def the_result_is_that_of_the_run(probe: Probe) -> Iterator[str]:
    """`finish` gives the same result, however the run was cut into stages."""
    results = []
    for cuts in probe.partitions():
        cotangent = probe.cotangent(cuts)
        results.append(probe.seen(probe.machine.finish(cotangent)))
    for result in results[1:]:
        if results[0] != result:
            yield "two ways to cut the run had different results"
            return


def bytes_are_counted(probe: Probe) -> Iterator[str]:
    """`nbytes` and `tape_nbytes` give numbers of bytes that are not negative."""
    for start in _places(probe):
        nbytes = probe.machine.nbytes(probe.at(start))
        if not is_count(nbytes):
            yield f"`nbytes` of the capsule before step {start} is {nbytes!r}"
    if offers(probe.machine, TapingMachine) and probe.steps > 1:
        tape, _ = probe.machine.tape(probe.machine.start(), 1)
        nbytes = probe.machine.tape_nbytes(tape)
        if not is_count(nbytes):
            yield f"`tape_nbytes` of the tape of step 0 is {nbytes!r}"


def a_tape_is_swept_as_a_stage_is(probe: Probe) -> Iterator[str]:
    """`sweep` after `tape` gives what `reverse` gives, each time that it is called."""
    for start in _places(probe):
        steps = min(probe.longest, probe.steps - start) - 1
        if steps < 1:
            continue
        stop = start + steps
        tape, after = probe.machine.tape(probe.at(start), steps)
        if probe.seen(after) != probe.seen(probe.at(stop)):
            yield f"the state after a tape of {start} to {stop} is not that of a run"
        # A cotangent may be changed in place: each call has its own.
        direct = probe.machine.reverse(probe.at(start), steps, _after(probe, stop))
        direct = probe.seen(direct)
        for _ in range(2):
            swept = probe.machine.sweep(tape, steps, _after(probe, stop))
            if direct != probe.seen(swept):
                yield f"the tape of {start} to {stop} gave another cotangent"


def schedules_agree(probe: Probe) -> Iterator[str]:
    """Under every schedule a run has the same result, and does what is predicted."""
    n, alpha = probe.steps, probe.longest
    first = None
    for name, schedule in _schedules(n, alpha, probe.machine):
        outcome = run(probe.make(), schedule)
        result = probe.seen(outcome.result)
        first = result if first is None else first
        if first != result:
            yield f"{name} gave another result"
        counts, report = schedule.counts(), outcome.report
        if (report.advances, report.stores) != (counts.advances, counts.stores):
            yield (
                f"under {name} {report.advances} steps were advanced and "
                f"{report.stores} snapshots stored, and {counts.advances} and "
                f"{counts.stores} were predicted"
            )
    if probe.machine.length() is None:
        plan = fixed_space(snapshots=3, stage=max(1, min(alpha, -(-n // 5))))
        if first != probe.seen(run(probe.make(), plan).result):
            yield "a run that was not told its length gave another result"


def copies_stay(probe: Probe) -> Iterator[str]:
    """What `copy_capsule` gives stays as it is: no call overwrites it."""
    for start in _places(probe):
        machine = probe.make()
        capsule = machine.start()
        if start:
            capsule = machine.advance(capsule, start)[0]
        copy = machine.copy_capsule(capsule)
        shown = probe.seen(copy)
        if shown != probe.seen(machine.copy_capsule(capsule)):
            yield f"two copies of the capsule before step {start} are different"
        machine.advance(capsule, probe.steps - start)
        if shown != probe.seen(copy):
            yield f"`advance` overwrote a copy of the capsule before step {start}"


LAWS: tuple[Law, ...] = (
    the_length_is_a_number,
    the_start_is_a_state,
    capsules_are_values,
    advances_are_deterministic,
    advances_are_counted,
    advances_compose,
    stages_compose,
    the_result_is_that_of_the_run,
    bytes_are_counted,
    schedules_agree,
)
"""What every machine promises."""
TAPING_LAWS: tuple[Law, ...] = (a_tape_is_swept_as_a_stage_is,)
"""What a `TapingMachine` promises besides."""
OVERWRITING_LAWS: tuple[Law, ...] = (copies_stay,)
"""What an `OverwritingMachine` promises besides."""


def _schedules(n: int, alpha: int, machine: Any) -> Iterator[tuple[str, Any]]:
    for d in (1, 2, 4):
        for stage in sorted({1, max(1, alpha // 2), alpha}):
            stages = -(-n // stage)
            if stages > 64 * d:  # one snapshot and n stages are n^2/2 advances
                continue
            yield f"`Schedule({n}, {d}, {stage})`", Schedule(n, d, stage)
    if offers(machine, TapingMachine) and 1 < n <= 256:
        yield f"`Mixed({n}, 3)`", Mixed(n, 3)
        if alpha > 1:
            yield f"`Mixed({n}, 4, 2, 1, 2)`", Mixed(n, 4, 2, 1, 2)


def _places(probe: Probe) -> list[int]:
    """Steps to look at: the first, one inside, the last."""
    last = probe.steps - 1
    return sorted({0, probe.steps // 2, last}) if probe.steps else []


def _stretches(probe: Probe) -> Iterator[tuple[int, int]]:
    """Starts, and steps from there that do not leave the run."""
    n = probe.steps
    for start in _places(probe):
        for steps in sorted({1, (n - start) // 2, n - start}):
            if steps > 0:
                yield start, steps


def _after(probe: Probe, stop: int) -> Any:
    """The cotangent of the state before a step; `None` at the end."""
    if stop == probe.steps:
        return None
    cuts = range(probe.steps % probe.longest, probe.steps, probe.longest)
    return probe.cotangent([*cuts, stop], stop)

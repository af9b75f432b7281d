"""A run that ends early: where, and what it writes, so that the next job goes on there.

It stops between two actions, or between two steps of a long advance. Beside what the
plan keeps it writes the state that is worked on; and what a tiered store has in memory,
which would be lost with the process. A limit that is shorter than a stage would end
each job where it began: that is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from retape._errors import PlanError, RunInterrupted, StoreError
from retape.driver._interrupt import interruptible
from retape.driver._resume import signed
from retape.schedule import Advance, Drop, Reverse, Store, Sweep, Tape
from retape.schedule._action import Action
from retape.storage import Place

if TYPE_CHECKING:
    from retape.driver._loop import Run

_PART = 0.1
"""Seconds that an advance may take before it is asked again whether to stop."""
_TAPED = 3.0
"""Steps that a taped step is supposed to take, until one has been seen."""


def stoppable(run: Run, actions: Iterable[Action]) -> Iterable[Action]:
    """The same actions, which end between two of them when it is time.

    Advances are in parts that take about a tenth of a second.
    """
    return actions if run.limit is None else _stoppable(run, actions, run.limit)


def _stoppable(
    run: Run, actions: Iterable[Action], limit: interruptible
) -> Iterator[Action]:
    for action in actions:
        if isinstance(action, Advance):
            if _would_be_further(run):
                yield from _in_parts(run, action, limit)
                continue
        elif not isinstance(action, Drop):
            steps = action.stop - action.start if isinstance(action, _WHOLE) else 0
            _look(run, limit, _expected(run, action), steps)
        yield action


def _would_be_further(run: Run) -> bool:
    """Whether a run that ends here would have come further than the job before it.

    On the way to an end that is not known it goes on from the start of a stage.
    """
    if run.length is not None:
        return True
    return run.behind is not None and run.behind[0] > run.skipped


def _in_parts(run: Run, action: Advance, limit: interruptible) -> Iterator[Advance]:
    at = action.start
    while at < action.stop:
        each = _step_seconds(run)
        part = 1 if each is None else max(1, int(_PART / max(each, 1e-9)))
        upto = min(action.stop, at + part)
        _look(run, limit, (each or 0.0) * (upto - at))
        yield Advance(at, upto)
        if run.at < upto:
            return  # That is the end of a run, which nobody knew.
        at = upto


def _look(run: Run, limit: interruptible, seconds: float, steps: int = 0) -> None:
    """Stop if it is time, or would be after an action that takes so long.

    Args:
        run: The run.
        limit: What ends it.
        seconds: What the action is expected to take.
        steps: The steps that it cannot be stopped within.

    Raises:
        RunInterrupted: If it is time.
        PlanError: If no job would ever come to the end of the action.
    """
    report = run.report
    each = report.seconds["storage"] / max(1, report.stores + report.restores)
    writes = (2 + _near(run)) * each
    whole = limit.time_limit
    # A taped step takes no less than one that is advanced.
    surely = seconds if report.taped else seconds / _TAPED
    if whole and steps and surely > whole:
        raise _too_long(run, steps, surely, whole)
    reason = limit.due(seconds + writes)
    if reason is None:
        return
    kept = _keep_working(run)
    _save_near(run)
    run.record()
    raise RunInterrupted(_message(run, reason, kept), reason)


_WHOLE = (Reverse, Sweep, Tape)
"""What is not stopped within."""


def _expected(run: Run, action: Action) -> float:
    """The seconds that an action will take, by those before it."""
    if isinstance(action, Store) and run.proof is not None:
        return _step_seconds(run) or 0.0
    if not isinstance(action, _WHOLE):
        return 0.0
    steps = action.stop - action.start
    if run.report.taped:
        return steps * run.report.seconds["reverse"] / run.report.taped
    return steps * _TAPED * (_step_seconds(run) or 0.0)


def _step_seconds(run: Run) -> float | None:
    if run.report.advances == 0:
        return None
    return (
        run.report.seconds["forward"] + run.report.seconds["recompute"]
    ) / run.report.advances


def _keep_working(run: Run) -> bool:
    """Write the state that is worked on, which no slot holds; whether it is kept.

    On the way to an end that is not known that is the one before it, of which it is not
    decided yet whether it is kept.
    """
    step, capsule = run.behind or (run.at, run.working)
    if capsule is None or step == 0 or step in {at.step for at in run.slots.values()}:
        return True
    if run.store.is_lossy:
        return False  # To go on from it would change the result.
    nbytes = run.machine.nbytes(capsule)
    with suppress(StoreError):
        # No slot of the schedule's, and on no tier that ends with the process.
        kept = run.packed(signed(run, step, capsule))
        run.store.put(Place(step, -1, "disk"), kept, nbytes)
        return True
    return False


def _near(run: Run) -> int:
    """The snapshots that have to be written if the run ends here."""
    return len(run.slots) if run.store.saves else 0


def _save_near(run: Run) -> None:
    """Write what a tiered store has in memory, or the next job would make it again."""
    if not run.store.saves or run.store.is_lossy:
        return
    machine = run.machine
    for place in run.slots.values():
        # What has no room there, or was lost with an earlier process, is made again.
        with suppress(StoreError):
            held = run.store.get(place)
            nbytes = machine.tape_nbytes(held) if place.tape else machine.nbytes(held)
            run.store.save(place, nbytes)


def _too_long(run: Run, steps: int, seconds: float, whole: float) -> PlanError:
    """The refusal of a stage that no job gets to the end of."""
    run.record()
    fits = int(steps * whole / (2 * seconds))
    advice = (
        f"Pass a plan with `stage={fits}` (`within` has no such option, `fixed_space` "
        "has), which takes half of the limit, and another directory"
        if fits
        else "Pass a longer limit"
    )
    return PlanError(
        f"a stage of {steps} steps is expected to take {seconds:.3g} s, and the time "
        f"limit is {whole:g} s: a stage is not cut in two, so no job would come to its "
        f"end. {advice}."
    )


def _message(run: Run, reason: str, kept: bool) -> str:
    left = run.reached.left if run.reached else None
    if left is None:
        length = "an unknown number of" if run.length is None else run.length
        where = f"on the way forward, before step {run.at} of {length} steps"
    else:
        where = f"with {left} of {run.length} steps left to reverse"
    since = "" if kept else "; the steps since the last snapshot are run again"
    return (
        f"the run was ended by {reason}, {where}. Its store has all that is "
        f"needed to go on: make the same call again{since}. A job that is to be "
        f"queued again may end with `raise SystemExit(error.exit_code)`, which is "
        f"{RunInterrupted.exit_code}."
    )

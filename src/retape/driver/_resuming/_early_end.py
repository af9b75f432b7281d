"""A run that ends early: what it writes, so that the next job goes on there.

Beside what the plan keeps: the state that is worked on; and what a tiered store has in
memory, which would be lost with the process. A limit that is shorter than a stage would
end each job where it began: that is refused.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from retape._errors import PlanError, RunInterrupted, StoreError
from retape.driver._resuming._proof import signed
from retape.storage import Place

if TYPE_CHECKING:
    from retape.driver._loop import Run

C = TypeVar("C")
A = TypeVar("A")
R = TypeVar("R")


def keep_working(run: Run[C, A, R]) -> bool:
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


def near(run: Run[C, A, R]) -> int:
    """The snapshots that have to be written if the run ends here."""
    return len(run.slots) if run.store.saves else 0


def save_near(run: Run[C, A, R]) -> None:
    """Write what a tiered store has in memory, or the next job would make it again."""
    if not run.store.saves or run.store.is_lossy:
        return
    machine: Any = run.machine
    for place in run.slots.values():
        # What has no room there, or was lost with an earlier process, is made again.
        with suppress(StoreError):
            held: Any = run.store.get(place)
            nbytes = machine.tape_nbytes(held) if place.tape else machine.nbytes(held)
            run.store.save(place, nbytes)


def too_long(run: Run[C, A, R], steps: int, seconds: float, whole: float) -> PlanError:
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


def message(run: Run[C, A, R], reason: str, kept: bool) -> str:
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

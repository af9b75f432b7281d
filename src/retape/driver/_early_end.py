"""A run that ends early: what it writes, so that the next job goes on there.

Beside what the plan keeps: the state that is worked on; and what a tiered store has in
memory, which would be lost with the process. A limit that is shorter than a stage would
end each job where it began: that is refused.
"""

from contextlib import suppress
from typing import Any, TypeVar

from retape._errors import PlanError, RunInterrupted, StoreError
from retape.driver._obey import Loop

C = TypeVar("C")
A = TypeVar("A")
R = TypeVar("R")


def keep_working(loop: Loop[C, A, R]) -> bool:
    """Write the state that is worked on, which no slot holds; whether it is kept."""
    if loop.working is None or loop.at == 0 or loop.at in loop.slots.values():
        return True
    if loop.store.is_lossy:
        return False  # To go on from it would change the result.
    nbytes = loop.machine.nbytes(loop.working)
    with suppress(StoreError):
        # No slot of the schedule's, and on no tier that ends with the process.
        signed = loop.signed(loop.at, loop.working)
        loop.store.put(loop.at, -1, "disk", loop.packed(signed), nbytes)
        return True
    return False


def near(loop: Loop[C, A, R]) -> int:
    """The snapshots that have to be written if the run ends here."""
    return len(loop.slots) if loop.store.saves else 0


def save_near(loop: Loop[C, A, R]) -> None:
    """Write what a tiered store has in memory, or the next job would make it again."""
    if not loop.store.saves or loop.store.is_lossy:
        return
    machine: Any = loop.machine
    for place, step in loop.slots.items():
        tier, slot = place
        tape = place in loop.tapes
        # What has no room there, or was lost with an earlier process, is made again.
        with suppress(StoreError):
            held: Any = loop.store.get(step, slot, tier, tape=tape)
            nbytes = machine.tape_nbytes(held) if tape else machine.nbytes(held)
            loop.store.save(step, slot, tier, nbytes, tape=tape)


def too_long(
    loop: Loop[C, A, R], steps: int, seconds: float, whole: float
) -> PlanError:
    """The refusal of a stage that no job gets to the end of."""
    loop.record()
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


def message(loop: Loop[C, A, R], reason: str, kept: bool) -> str:
    left = loop.reached.left if loop.reached else None
    if left is None:
        length = "an unknown number of" if loop.length is None else loop.length
        where = f"on the way forward, before step {loop.at} of {length} steps"
    else:
        where = f"with {left} of {loop.length} steps left to reverse"
    since = "" if kept else "; the steps since the last snapshot are run again"
    return (
        f"the run was ended by {reason}, {where}. Its store has all that is "
        f"needed to go on: make the same call again{since}. A job that is to be "
        f"queued again may end with `raise SystemExit(error.exit_code)`, which is "
        f"{RunInterrupted.exit_code}."
    )

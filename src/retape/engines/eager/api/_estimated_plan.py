"""`recompute(plan=found)`: the plan of an estimated program, from its first run on.

Without it an estimated program is known by what it does. With it a run that does
something else is told: the estimate would be without effect in silence.
"""

from retape._warn import warn
from retape.engines.eager._errors import PlanError
from retape.engines.eager.analysis._measured import whole_mark
from retape.engines.eager.api._available_bytes import automatic_budget
from retape.engines.eager.api._estimate import Estimate
from retape.engines.eager.keep._keeper import Keeper
from retape.engines.eager.plan._planned_forward import PlannedKeeper
from retape.engines.eager.plan._program import Program
from retape.engines.eager.trace._run import Run


def estimated_budget(
    found: Estimate, memory: object, others: dict[str, object]
) -> tuple[int, Program | None]:
    """The budget of a run that is to follow an estimate, and the program.

    Args:
        found: The estimate.
        memory: A budget; the sensible one if it is `None`.
        others: By name, the arguments under which no run has a plan, those of the
            caller's that were given.

    Raises:
        PlanError: If one of the others is there.
        BudgetError: If the program cannot be reversed in so few bytes.
    """
    if others:
        names = " and ".join(f"`{name}`" for name in others)
        raise PlanError(
            f"`plan` is an estimate, and {names} was given, too: only runs of "
            "operators within bytes, without it, have the plan of an estimate. Leave "
            "one of them out."
        )
    if memory is None:
        memory = found.sensible
    nbytes = found.checked(automatic_budget() if memory == "auto" else memory)
    return nbytes, found.known


def tell_if_another(known: Program, run: Run, keeper: Keeper) -> None:
    """Warn if a run that is over has not done what was estimated."""
    plan = keeper.plan if isinstance(keeper, PlannedKeeper) else None
    if plan is not None and not plan.broken:
        if plan.measured is known.measured:
            return
    if run.living and whole_mark(run) != known.mark:
        assert known.measured is not None, "it was estimated"
        warn(
            f"The program that was run (`{len(run.trace.steps)}` operators) is not the "
            f"one that `plan` was estimated for (`{len(known.measured.costs)}`), so "
            "it was kept to the budget by rules. Estimate all that the block runs, its "
            "loss included, on tensors of the same shapes and types and in the same "
            "mode."
        )

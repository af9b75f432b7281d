"""By the costs that plans are made with: more memory never costs more, exactly."""

from typing import Any

import pytest

import retape.torch
from retape.torch import recompute
from tests.engines.eager.support.seams import cost_again, forget
from tests.judges.torch.rows import row

BUDGETS = 5
# Programs that hold no more than their records show, so that none leaves its plan.
PROGRAMS = ["scan", "hooked", "heads", "random_3"]


def estimated(program: str) -> Any:
    forget()
    row(program).reset()
    return retape.torch.estimate(row(program).loss)


def cost_in(memory: int, program: str, found: Any) -> int:
    """The cost of what one run computes again."""
    row(program).reset()
    with recompute(memory=memory) as run:
        loss = row(program).loss()
    loss.backward()
    assert run.report.plan.state == "followed"
    return cost_again(run, found)


@pytest.mark.slow("True-heads", *(f"False-{name}" for name in PROGRAMS))
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("upwards", [True, False])
def test_a_plan_costs_what_was_told_and_more_memory_no_more(
    program: str, upwards: bool
) -> None:
    """In shares of the forward, which is all that is run again at once."""
    found = estimated(program)
    low, room = found.curve[0].memory, found.enough - found.curve[0].memory
    budgets = [low + room * k // BUDGETS for k in range(BUDGETS)]
    costs = {
        memory: cost_in(memory, program, found)
        for memory in (budgets if upwards else budgets[::-1])
    }
    ordered = [costs[memory] for memory in budgets]
    assert ordered == sorted(ordered, reverse=True) and ordered[0] > ordered[-1]
    told = found.recomputed(budgets[2])
    assert 0 < told < 3
    share = told / found.recomputed(low)
    assert costs[budgets[2]] / costs[low] == pytest.approx(share, rel=1e-6)

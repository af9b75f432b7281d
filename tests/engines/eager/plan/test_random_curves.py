"""Random programs in growing budgets: costs never rise, and each budget holds."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

import retape.torch
from retape.engines.eager.plan._known import Known
from retape.engines.eager.plan._learned import forget_lessons
from retape.torch import recompute
from tests.engines.eager.support.allocator import peak_bytes
from tests.engines.eager.support.random_programs import RandomProgram

BUDGETS = 6
# Programs that hold no more than their records show, so that none leaves its plan.
SEEDS = (3, 33)


class Curve(NamedTuple):
    """Budgets from small to large, and the plans that are known for them."""

    budgets: list[int]
    known: Known


def loss_of(program: RandomProgram) -> Tensor:
    return torch.stack(program()).sum()


def estimated(program: RandomProgram) -> Curve:
    """The budgets for which an estimate knows a plan, before anything is run."""
    forget_lessons()
    program.reset()
    found = retape.torch.estimate(lambda: loss_of(program))
    assert found.known is not None
    low, high = found.curve[0].memory, found.enough
    budgets = [low + (high - low) * k // BUDGETS for k in range(BUDGETS)]
    return Curve(budgets, found.known)


def cost_in(
    memory: int, program: RandomProgram, curve: Curve, again: list[int]
) -> tuple[int, str]:
    """The cost of what one run computes again, and what became of its plan."""
    program.reset()
    again.clear()
    plans: list[str] = []

    def step() -> None:
        with recompute(memory=memory) as run:
            loss = loss_of(program)
        loss.backward()
        plans.append(run.report.plan)

    assert peak_bytes(step) <= memory  # by the allocator's count
    assert len(plans) == 1
    costs = curve.known.measures[0].costs
    return sum(costs[index] for index in again), plans[0]


def rises(costs: list[int]) -> list[int]:
    """The places where a larger budget costs more than some smaller one."""
    return [k for k in range(1, len(costs)) if costs[k] > min(costs[:k])]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("upwards", [True, False])
def test_first_runs_by_plan_never_cost_more_in_more_memory(
    seed: int, upwards: bool, again: list[int]
) -> None:
    program = RandomProgram(seed)
    curve = estimated(program)
    costs, plans = dict[int, int](), set[str]()
    for memory in curve.budgets if upwards else curve.budgets[::-1]:
        costs[memory], plan = cost_in(memory, program, curve, again)
        plans.add(plan)
    assert plans == {"followed"}
    assert rises([costs[each] for each in curve.budgets]) == []
    assert len(set(costs.values())) > 2


def test_a_dearer_plan_in_a_larger_budget_is_seen(again: list[int]) -> None:
    program = RandomProgram(SEEDS[0])
    curve = estimated(program)
    costs = [cost_in(each, program, curve, again)[0] for each in curve.budgets]
    assert rises(costs) == []
    choices = curve.known.choices
    choices[curve.budgets[-1]] = choices[curve.budgets[0]]
    costs[-1], _ = cost_in(curve.budgets[-1], program, curve, again)
    assert rises(costs) == [BUDGETS - 1]

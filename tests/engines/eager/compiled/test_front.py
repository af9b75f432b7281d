from functools import cache
from itertools import accumulate, combinations
from typing import Any

import pytest
import torch

from tests.engines.eager.compiled.joints import Seen, account, closure, mlp, seen


def wide(x):
    """Two branches that meet, of different widths."""
    y = x.sin().exp()
    z = torch.cat([y, y * x.cos()]).sin()
    return (z.exp() * torch.cat([y, x]).tanh()).sum()


def chain(x):
    for _ in range(5):
        x = x.sin()
    return x.sum()


MODEL = mlp(3)


def perceptron(x):
    return MODEL(x).square().sum()


@cache
def small(function) -> Seen:
    """What a function's partitioner is asked, compiled once for all tests."""
    return seen(function, torch.ones(20, 8, requires_grad=True))


def all_plans(joint: Any) -> list[Any]:
    """Every choice of what is saved, counted one by one."""
    every = closure(joint, joint.needed, ()).again
    values = [k for k in every if joint.savable[k] and not joint.view[k]]
    assert len(values) <= 12
    return [
        account(joint, set(kept), ())
        for count in range(len(values) + 1)
        for kept in combinations(values, count)
    ]


def best_of(plans: list[Any]) -> list[tuple[int, int]]:
    """The least cost of each peak, where no smaller peak has it."""
    ordered = sorted((each.peak, each.cost) for each in plans)
    costs = list(accumulate((cost for _, cost in ordered), min))
    return [
        (peak, cost)
        for k, (peak, cost) in enumerate(ordered)
        if k == 0 or cost < costs[k - 1]
    ]


@pytest.mark.slow("wide")
@pytest.mark.parametrize("function", [chain, wide, perceptron])
def test_no_choice_beats_the_front_on_small_graphs(function):
    found = small(function)
    plans = found.front(found.joint.needed)
    best = best_of(all_plans(found.joint))
    assert (plans[0].peak, plans[-1].cost) == (best[0][0], 0)
    for peak, cost in best:
        assert min(each.cost for each in plans if each.peak <= peak) == cost


def test_larger_plans_repeat_less():
    model = mlp(9)
    found = seen(lambda x: model(x).sum(), torch.ones(40, 8))
    plans = found.front(found.usual)
    assert len(plans) > 5
    peaks, costs = [p.peak for p in plans], [p.cost for p in plans]
    assert peaks == sorted(peaks) and costs == sorted(costs, reverse=True)
    assert costs[-1] == 0
    assert plans[0].peak < 0.5 * plans[-1].peak

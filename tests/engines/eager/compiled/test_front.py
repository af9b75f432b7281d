from functools import cache
from itertools import combinations

import pytest
import torch

from retape.engines.eager.compiled._closure import closure, direct
from retape.engines.eager.compiled._cut import cheapest
from retape.engines.eager.compiled._front import front, pareto
from retape.engines.eager.compiled._joint import Joint
from retape.engines.eager.compiled._liveness import Account, account
from retape.engines.eager.compiled._paths import dropping
from tests.engines.eager.compiled.joints import Seen, mlp, seen


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


def all_plans(joint: Joint) -> list[Account]:
    """Every choice of what is saved, counted one by one."""
    every = closure(joint, joint.needed, ()).again
    values = [k for k in every if joint.savable[k] and not joint.view[k]]
    assert len(values) <= 12
    return [
        account(joint, set(kept), ())
        for count in range(len(values) + 1)
        for kept in combinations(values, count)
    ]


@pytest.mark.parametrize("function", [chain, wide, perceptron])
def test_no_choice_beats_the_front_on_small_graphs(function):
    found = small(function)
    plans = front(found.joint, found.usual, ())
    best = pareto(all_plans(found.joint))
    assert (plans[0].peak, plans[-1].cost) == (best[0].peak, 0)
    ours = [min(p.cost for p in plans if p.peak <= each.peak) for each in best]
    as_good = [mine == each.cost for mine, each in zip(ours, best, strict=True)]
    assert all(as_good)


@pytest.mark.parametrize("function", [chain, wide, perceptron])
@pytest.mark.parametrize("price", [0.1, 2.0, 5.0, 100.0])
def test_the_cut_is_the_cheapest_choice(function, price):
    joint = small(function).joint

    def worth(plan: Account) -> float:
        return plan.cost + price * plan.saved

    found = account(joint, cheapest(joint, price, ()), ())
    assert worth(found) == min(worth(each) for each in all_plans(joint))


def test_larger_plans_repeat_less():
    model = mlp(9)
    found = seen(lambda x: model(x).sum(), torch.ones(40, 8))
    plans = front(found.joint, found.usual, found.free)
    assert len(plans) > 5
    peaks, costs = [p.peak for p in plans], [p.cost for p in plans]
    assert peaks == sorted(peaks) and costs == sorted(costs, reverse=True)
    assert costs[-1] == 0
    assert plans[0].peak < 0.5 * plans[-1].peak


def test_paths_drop_one_value_at_a_time():
    joint = small(chain).joint
    everything = direct(joint)
    down = list(dropping(joint, everything, ()))
    assert [len(each) for each in down] == list(range(len(everything) - 1, -1, -1))

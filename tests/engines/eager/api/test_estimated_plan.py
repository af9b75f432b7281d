"""A program that was estimated follows its plan from its first run on."""

from typing import Any

import pytest
import torch

from retape import BudgetError, PlanError, RetapeWarning
from retape.torch import estimate, recompute
from tests.engines.eager.api.test_estimate import loss_of, perceptron
from tests.engines.eager.plan.test_learned import Hoarder, net, peak_in
from tests.engines.eager.support.seams import forget


@pytest.mark.slow
@pytest.mark.parametrize("lets_go", [False, True])
def test_what_an_estimated_program_holds_itself_is_learned(lets_go: bool) -> None:
    chain, memory, reports = net(), 1_700_000, list[Any]()
    hoarder = Hoarder(chain, 52, lets_go)
    estimate(lambda x: hoarder(x).sum(), torch.ones(256, 48))
    hoarder.held = []
    for _ in range(3):
        assert peak_in(chain, lambda: hoarder.job(memory, reports)) <= memory
    # What is let go at the end is taken to be on tapes, which it may not all be.
    assert reports[0].plan.state in ("left", "followed")
    assert reports[-1].recomputed > 0 and (
        lets_go or reports[-1].plan.state == "followed"
    )


def test_an_estimate_is_a_plan_with_a_budget_of_its_own() -> None:
    model, x = perceptron()
    program = loss_of(model)
    found = estimate(program, x)
    forget()  # what was found knows the program nevertheless
    run = recompute(plan=found)
    with run:
        program(x).backward()
    with run:
        loss = program(x)
    loss.backward()
    assert run.report.peak_bytes <= found.sensible
    under = recompute(memory=2 * found.least, plan=found)
    under(program)(x).backward()
    assert under.report.plan.state == "followed"
    with recompute(memory="1GB", plan=found) as ample:
        loss = program(x)
    loss.backward()
    assert (ample.report.plan.state, ample.report.recomputed) == ("none", 0)


def test_another_program_than_the_estimated_one_is_told() -> None:
    model, x = perceptron()
    found = estimate(loss_of(model), x)
    for other in (lambda: model(x[:64]).square().sum(), lambda: model(x).sum()):
        with pytest.warns(RetapeWarning, match="not the one that `plan` was est"):
            with recompute(memory=500_000, plan=found) as run:
                loss = other()
        loss.backward()
        assert run.report.plan.state == "left"
    with recompute(plan=found), torch.no_grad():  # nothing to plan
        other()


def test_what_has_no_plan_is_refused_with_an_estimate() -> None:
    model, x = perceptron()
    found = estimate(loss_of(model), x)
    for argument in (
        {"verify": True}, {"store": "cpu"}, {"snapshots": 4}, {"mode": "loop"},
        {"policy": [torch.ops.aten.mm.default]},
    ):  # fmt: skip
        with pytest.raises(PlanError, match=f"`{next(iter(argument))}` was given"):
            recompute(plan=found, **argument)
    with pytest.raises(BudgetError, match="needs at least") as caught:
        recompute(memory=found.least - 1, plan=found)
    assert caught.value.least == found.least

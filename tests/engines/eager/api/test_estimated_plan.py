"""A program that was estimated follows its plan from its first run on."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from retape import BudgetError, PlanError, RetapeWarning
from retape.engines.eager.plan._known import Known, programs
from retape.engines.eager.plan._learned import forget_lessons
from retape.engines.eager.record._dispatch_mode import active_recorder
from retape.torch import Estimate, estimate, recompute
from tests.engines.eager.api.test_estimate import (
    attention,
    convolutions,
    heads,
    loss_of,
    perceptron,
)
from tests.engines.eager.plan.test_learned import Hoarder, net
from tests.engines.eager.support.allocator import peak_bytes

BUDGETS = 10


def found_in(program: Callable[[Tensor], Tensor], x: Tensor) -> Estimate:
    """An estimate in a process that knows nothing else."""
    forget_lessons()
    return estimate(program, x)


def gradients(
    program: Callable[[Tensor], Tensor], x: Tensor, model: nn.Module, under: Any
) -> list[Tensor]:
    state = {name: each.clone() for name, each in model.state_dict().items()}
    torch.manual_seed(1)
    with under:
        loss = program(x)
    found = [loss, *torch.autograd.grad(loss, list(model.parameters()))]
    found += [each.clone() for each in model.buffers()]
    model.load_state_dict(state)
    return found


@pytest.mark.usefixtures("tensors_alone")
@pytest.mark.parametrize("make", [perceptron, convolutions, attention, heads])
def test_first_runs_are_monotone_exact_and_as_told(make: Any, again: list[int]) -> None:
    torch.manual_seed(0)
    model, x = make()
    program = loss_of(model)
    plain = gradients(program, x, model, contextlib.nullcontext())
    found = found_in(program, x)
    assert found.known is not None
    costs = found.known.measures[0].costs
    low, high, shares = found.least, found.enough, list[float]()
    for k in range(BUDGETS + 1):
        memory = low + (high - low) * k // BUDGETS
        forget_lessons()  # all that is known is what the estimate tells
        known = found.known
        programs.expect(Known(known.measures, known.mark, known.estimated))
        again.clear()
        run = recompute(memory=memory)
        values = gradients(program, x, model, run)
        assert all(map(torch.equal, values, plain))
        shares.append(sum(costs[step] for step in again) / sum(costs))
        if run.report.plan == "followed":
            assert shares[-1] <= found.recomputed(memory) + 1e-9
        assert run.report.peak_bytes <= memory
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > shares[-1] == 0


@pytest.mark.usefixtures("tensors_alone")
def test_the_allocator_counts_no_more_in_a_first_run() -> None:
    model, x = perceptron()
    program, parameters = loss_of(model), list(model.parameters())
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    found = found_in(program, x)
    for memory in (found.least, found.curve[3].memory, found.curve[-2].memory):
        run = recompute(memory=memory, plan=found)

        def job(run: Any = run) -> None:
            with run:
                loss = program(x)
            loss.backward()

        assert peak_bytes(job) <= memory
    assert run.report.plan == "followed"


@pytest.mark.usefixtures("tensors_alone")
@pytest.mark.parametrize("lets_go", [False, True])
def test_what_a_program_holds_itself_is_seen_beforehand(lets_go: bool) -> None:
    hoarder = Hoarder(net(), since=52)
    model = hoarder.and_lets_go if lets_go else hoarder
    parameters = list(hoarder.chain.parameters())
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    x, memory = torch.ones(256, 48), 1_500_000
    found = found_in(lambda x: model(x).sum(), x)
    hoarder.held = []
    run = recompute(memory=memory, plan=found)

    def job() -> None:
        with run:
            loss = model(x).sum()
        loss.backward()
        hoarder.held = []

    assert peak_bytes(job) <= memory
    # What is let go at the end is taken to be on tapes, which it may not all be.
    assert run.report.plan == ("left" if lets_go else "followed")
    assert peak_bytes(job) <= memory
    assert run.report.plan == "followed" and run.report.recomputed > 0


def test_nothing_is_planned_while_a_run_is_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    choose, places = Known.choose, list[bool]()

    def watched(*args: Any) -> Any:
        places.append(active_recorder() is None)
        return choose(*args)

    model, x = perceptron()
    program = loss_of(model)
    estimate(program, x)
    monkeypatch.setattr(Known, "choose", watched)
    with recompute(memory=600_000) as run:
        loss = program(x)
    loss.backward()
    assert run.report.plan == "followed" and places == [True]


def test_an_estimate_is_a_plan_with_a_budget_of_its_own() -> None:
    model, x = perceptron()
    program = loss_of(model)
    found = found_in(program, x)
    forget_lessons()  # what was found knows the program nevertheless
    run = recompute(plan=found)
    with run:
        program(x).backward()
    with run:
        loss = program(x)
    loss.backward()
    assert run.report.peak_bytes <= found.sensible
    under = recompute(memory=2 * found.least, plan=found)
    under(program)(x).backward()
    assert under.report.plan == "followed"
    with recompute(memory="1GB", plan=found) as ample:
        loss = program(x)
    loss.backward()
    assert (ample.report.plan, ample.report.recomputed) == ("none", 0)


def test_another_program_than_the_estimated_one_is_told() -> None:
    model, x = perceptron()
    found = found_in(loss_of(model), x)
    for other in (lambda: model(x[:64]).square().sum(), lambda: model(x).sum()):
        with pytest.warns(RetapeWarning, match="not the one that `plan` was est"):
            with recompute(memory=500_000, plan=found) as run:
                loss = other()
        loss.backward()
        assert run.report.plan == "left"
    with recompute(plan=found), torch.no_grad():  # nothing to plan
        other()


def test_what_has_no_plan_is_refused_with_an_estimate() -> None:
    model, x = perceptron()
    found = found_in(loss_of(model), x)
    for argument in (
        {"verify": True}, {"store": "cpu"}, {"snapshots": 4}, {"mode": "loop"},
        {"policy": [torch.ops.aten.mm.default]},
    ):  # fmt: skip
        with pytest.raises(PlanError, match=f"`{next(iter(argument))}` was given"):
            recompute(plan=found, **argument)
    with pytest.raises(BudgetError, match="needs at least") as caught:
        recompute(memory=found.least - 1, plan=found)
    assert caught.value.least == found.least

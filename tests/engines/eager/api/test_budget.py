"""The budget, as the allocator counts it."""

import contextlib
import re
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import retape
from retape import torch as retape_torch
from retape._errors import BudgetError, PlanError
from retape.engines.eager.plan._learned import forget_lessons
from tests.engines.eager.support.allocator import peak_bytes


def model() -> nn.Module:
    torch.manual_seed(0)
    layers = [m for _ in range(40) for m in (nn.Linear(64, 64), nn.ReLU())]
    return nn.Sequential(*layers)


def job(net: nn.Module, x: torch.Tensor, under: object) -> Callable[[], None]:
    def run() -> None:
        with under:  # type: ignore[attr-defined]
            loss = net(x).square().sum()
        loss.backward()

    return run


def test_twenty_budgets_hold_and_more_memory_is_less_work() -> None:
    net, x = model(), torch.randn(512, 64)
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    ample = retape_torch.recompute(memory="1GB")
    plain = peak_bytes(job(net, x, ample))
    with pytest.raises(BudgetError) as caught:
        job(net, x, retape_torch.recompute(memory=1000))()  # type: ignore[operator]
    least = int(re.search(r"at least `(\d+)`", str(caught.value)).group(1))  # type: ignore[union-attr]
    assert caught.value.least == least
    assert 64 * 512 * 4 < least < plain / 5
    work = []
    for k in range(20):
        budget = least + (plain - least) * k // 19
        under = retape_torch.recompute(memory=budget)
        assert peak_bytes(job(net, x, under)) <= budget
        work.append(under.report.recomputed)
    # Room for the formula of `square`, of two tensors, is kept from the start.
    assert work[-1] <= 8
    # The spacing doubles, so neighbours may tie or swap; the trend may not.
    assert all(later <= 1.3 * earlier + 4 for earlier, later in pairwise(work))


def test_the_measure_sees_a_broken_budget() -> None:
    net, x = model(), torch.randn(512, 64)
    under = retape_torch.recompute(memory="1GB")
    assert peak_bytes(job(net, x, under)) > 40 * 512 * 64 * 4


@pytest.mark.parametrize("memory", ["2 XB", "much", "", -1, 0, float("inf"), "0GB"])
def test_a_wrong_amount_is_refused(memory: object) -> None:
    with pytest.raises(PlanError, match="memory="):
        retape_torch.recompute(memory=memory)  # type: ignore[arg-type]


def test_snapshots_are_bounded_by_their_number() -> None:
    net, x = model(), torch.randn(8, 64)
    under = retape_torch.recompute(snapshots=4, stage=4)
    job(net, x, under)()  # type: ignore[operator]
    report = under.report
    assert report.steps == 82 and report.stages > 10
    assert report.snapshots - report.thinned <= 4


def peaks(program: Callable[[], torch.Tensor], share: float, runs: int) -> list[float]:
    """Of each run, over a budget between the least and what plain takes."""

    def job(under: object) -> Callable[[], None]:
        def run() -> None:
            with under:  # type: ignore[attr-defined]
                loss = program()
            loss.backward()

        return run

    forget_lessons()
    most = peak_bytes(job(contextlib.nullcontext()))
    with pytest.raises(BudgetError) as caught:
        job(retape_torch.recompute(memory=1100))()
    fewest = caught.value.least
    assert fewest is not None
    memory = int(fewest + share * (most - fewest))
    under = [retape_torch.recompute(memory=memory) for _ in range(runs)]
    return [peak_bytes(job(each)) / memory for each in under]


def zeroed(shape: tuple[int, ...]) -> nn.Parameter:
    """A small parameter whose gradient is there."""
    parameter = nn.Parameter(torch.randn(shape) / shape[-1] ** 0.5)
    parameter.grad = torch.zeros_like(parameter)
    return parameter


@pytest.mark.parametrize("depth, skip, share", [(16, 5, 0.1), (24, 6, 0.0)])
def test_what_two_stages_save_is_counted_in_each(
    depth: int, skip: int, share: float
) -> None:
    torch.manual_seed(0)
    weights, x = [zeroed((32, 32)) for _ in range(depth)], torch.randn(64, 32)

    def program() -> torch.Tensor:
        states = [x]
        for k, weight in enumerate(weights):
            state = (states[-1] @ weight).tanh()
            states.append(state if k < skip else state * states[k - skip + 1])
        return states[-1].square().mean()

    assert max(peaks(program, share, runs=2)) <= 1


@pytest.mark.parametrize(
    "rows, width, depth, share", [(16, 48, 4, 0.0), (16, 48, 6, 0.1)]
)
def test_a_state_is_let_go_before_autograd_asks_for_the_unit_before_it(
    rows: int, width: int, depth: int, share: float
) -> None:
    """A cube needs much room and reads nothing but the state that it begins at."""
    torch.manual_seed(0)
    wide = [zeroed((width, 4 * width)) for _ in range(depth)]
    back = [zeroed((4 * width, width)) for _ in range(depth)]
    x = torch.randn(rows, width)

    def program() -> torch.Tensor:
        state = x
        for first, second in zip(wide, back, strict=True):
            y = F.layer_norm(state, (width,)) @ first
            y = 0.5 * y * (1 + torch.tanh(0.8 * (y + 0.045 * torch.pow(y, 3.0))))
            state = state + F.dropout(y @ second, 0.1)
        return state.square().mean()

    assert max(peaks(program, share, runs=4)) <= 1


def test_a_budget_is_also_what_within_makes() -> None:
    model = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(20)])
    reports = []
    for memory in ("150kB", retape.within("150kB")):
        forget_lessons()
        under = retape_torch.recompute(memory=memory)
        with under:
            loss = model(torch.ones(64, 32)).sum()
        loss.backward()
        reports.append(under.report)
    assert reports[0] == reports[1]
    assert reports[0].recomputed > 0
    with pytest.raises(PlanError, match="is not an amount of memory"):
        retape_torch.recompute(memory=retape.logarithmic())

"""What a budget costs, told beforehand: the same that runs show."""

import copy
import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import retape.torch
from retape import BudgetError, UnsupportedError
from retape.engines.eager import _limits as available
from tests.judges.torch.models import MODELS
from tests.judges.torch.rows import least, row, run


def perceptron() -> tuple[nn.Module, Tensor]:
    return MODELS["perceptron"]()[0], torch.randn(128, 64)


def loss_of(model: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda x: model(x).square().sum()


@pytest.mark.slow("heads")
@pytest.mark.parametrize("name", ["perceptron", "convolution_blocks", "heads", "skips"])
def test_an_estimate_says_what_runs_show(name: str) -> None:
    program = row(name)
    program.reset()
    state = {k: value.clone() for k, value in program.net.state_dict().items()}
    random = torch.get_rng_state()
    found = retape.torch.estimate(program.loss)
    assert torch.equal(random, torch.get_rng_state())
    now = program.net.state_dict()
    assert all(torch.equal(value, now[k]) for k, value in state.items())
    assert found.least == least(name)
    ample = run(name, memory="1GB").reports[-1]
    assert found.steps == ample.steps
    assert 0 <= found.enough - ample.peak_bytes <= 0.05 * found.enough
    assert found.curve[-1].recomputed == 0.0
    assert all(a.recomputed >= b.recomputed for a, b in pairwise(found.curve))
    assert found.recomputed(found.sensible) <= 0.25
    whole = run(name, memory=found.enough).reports[-1]
    assert whole.recomputed == 0 and whole.peak_bytes <= found.enough
    assert f"{found.least:,}" in str(found)


def test_an_estimate_leaves_nothing_to_autocast() -> None:
    """Casts of weights are kept until the outermost `autocast` ends."""
    model, x = torch.nn.Linear(4, 4), torch.ones(2, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        want = model(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        retape.torch.estimate(model, x)
        found = model(x)
    assert type(found) is torch.Tensor and torch.equal(found, want)


@pytest.mark.parametrize("create_graph", [False, True])
def test_a_gradient_inside_is_not_estimated(create_graph: bool) -> None:
    def penalty(x: torch.Tensor) -> torch.Tensor:
        loss = x.sin().square().sum()
        (g,) = torch.autograd.grad(loss, x, create_graph=create_graph)
        return g.square().sum() + loss

    x = torch.ones(3, requires_grad=True)
    with pytest.raises(UnsupportedError, match="a gradient inside"):
        retape.torch.estimate(penalty, x)
    assert retape.torch.estimate(lambda x: x.sin().sum(), x).steps == 2


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))]
)
def test_an_estimate_may_be_copied(copied: Callable[[Any], Any]) -> None:
    model, x = torch.nn.Sequential(*[torch.nn.Linear(64, 64)] * 8), torch.ones(32, 64)
    found = retape.torch.estimate(model, x)
    again = copied(found)
    assert again == found
    with retape.torch.recompute(plan=again) as run:
        model(x).sum().backward()
    assert run.report.plan is not None


def test_a_budget_below_the_least_is_refused() -> None:
    model, x = perceptron()
    found = retape.torch.estimate(loss_of(model), x)
    with pytest.raises(BudgetError, match="needs at least") as caught:
        found.recomputed(found.least - 1)
    assert caught.value.least == found.least
    assert found.recomputed(2 * found.enough) == 0.0


def test_what_saves_nothing_needs_nothing() -> None:
    found = retape.torch.estimate(lambda x: x + 1, torch.ones(3))
    assert (found.steps, found.least, found.enough) == (1, 1, 1)


def test_a_model_without_values_is_estimated() -> None:
    with torch.device("meta"):
        model = nn.Sequential(*[nn.Linear(4096, 4096) for _ in range(4)])
        x = torch.empty(512, 4096)
    found = retape.torch.estimate(loss_of(model), x)
    assert found.enough > 4 * 512 * 4096 * 4


def test_an_automatic_budget_is_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    for free, budget in ((16_000, 8_192), (12_000, 8_192), (17_000, 12_288), (0, 1)):
        monkeypatch.setattr(available, "_free_bytes", lambda free=free: free)
        assert available.automatic_budget() == budget
    monkeypatch.setattr(available, "_free_bytes", lambda: 2**30)
    model, x = perceptron()
    with retape.torch.recompute(memory="auto") as run:
        loss = loss_of(model)(x)
    loss.backward()
    assert run.report.recomputed == 0


def test_an_automatic_budget_is_read_where_a_run_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, x = perceptron()
    monkeypatch.setattr(available, "_free_bytes", lambda: 2**30)
    run = retape.torch.recompute(memory="auto")
    decorated = run(loss_of(model))
    decorated(x)
    monkeypatch.setattr(available, "_free_bytes", lambda: 200)
    with pytest.raises(BudgetError, match="memory=128"):
        decorated(x)
    with pytest.raises(BudgetError, match="memory=128"), run:
        loss_of(model)(x)


def test_what_is_free_is_asked_of_machine_and_container(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    machine = available._machine()
    assert machine is not None and machine > 2**20
    monkeypatch.setattr(available, "_CGROUP", tmp_path)
    assert available._container() is None
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1000\n")
    assert available._container() is None
    (tmp_path / "memory.max").write_text("1500\n")
    assert available._container() == 500
    if not torch.cuda.is_available():
        assert available._free_bytes() == 500
        monkeypatch.setattr(available, "_container", lambda: None)
        monkeypatch.setattr(available, "_machine", lambda: None)
        with pytest.raises(UnsupportedError, match='memory="auto"'):
            available._free_bytes()


def test_advice_is_to_do_nothing_where_all_fits_and_else_says_what_it_costs() -> None:
    found = retape.torch.estimate(*perceptron())
    assert found.advise(found.enough).startswith("It fits as it is")
    assert "Do nothing" in found.advise("1GB")
    said = found.advise(found.sensible)
    share = found.recomputed(found.sensible)
    assert f"recompute(memory={found.sensible})" in said
    assert f"runs {share:.0%} of the forward again: {share / 3:.0%} of a step" in said
    assert found.advise(found.least - 1).startswith("No budget helps")
    unknown = replace(found, curve=(), known=None)
    assert "at a cost that is not known" in unknown.advise(found.least)


@pytest.mark.slow
def test_a_least_that_is_named_is_enough_where_much_is_held(accelerated: bool) -> None:
    """Notes on what is held depend on the budget, so they are in no least."""
    layers = [nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.ReLU())] * 24
    model, images = nn.Sequential(nn.Conv2d(4, 4, 3), *layers), torch.ones(2, 4, 72, 72)

    def loss() -> Tensor:
        return model(images).square().mean()

    with pytest.raises(BudgetError) as refused:
        retape.torch.recompute(memory=1)(loss)()
    named = refused.value.least, retape.torch.estimate(loss).least
    for each in named:
        assert each is not None and each > 10**6
        for _ in range(3):
            run = retape.torch.recompute(memory=each)
            run(loss)().backward()
            assert run.report.peak_bytes <= each


def lines_beside_a_loop(steps: int) -> int:
    """Lines of the library that are run while it looks at a loop that keeps results."""
    weight, lines = torch.randn(4, 4, requires_grad=True), [0]

    def count(frame: FrameType, event: str, _: object) -> Any:
        lines[0] += event == "line"
        return count if "retape" in frame.f_code.co_filename else None

    def program() -> Tensor:
        sys.settrace(count)
        state, kept = torch.zeros(1, 4), []
        for _ in range(steps):
            state = torch.tanh(state @ weight)
            kept.append(state)
        sys.settrace(None)
        return torch.stack(kept).sum()

    retape.torch.estimate(program)
    return lines[0]


def test_an_estimate_looks_as_long_at_each_step_of_a_longer_loop() -> None:
    lines_beside_a_loop(2)
    few, many = lines_beside_a_loop(10), lines_beside_a_loop(40)
    assert few < many < 4.2 * few

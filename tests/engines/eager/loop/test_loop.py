"""`mode="loop"`: exact where it runs, and refusing by name where it does not."""

import contextlib

import pytest
import torch
from torch import nn

from retape import BudgetError, PlanError, UnsupportedError
from retape import torch as retape_torch
from tests.judges.torch.allocator import peak_bytes
from tests.judges.torch.hard import PROGRAMS
from tests.schedule.numbers import optimal_advances


def test_two_blocks_of_one_parameter_differ_in_the_last_bit_only() -> None:
    """Autograd adds two sums instead of one."""
    program = PROGRAMS["graph_over_two_runs"]
    plain = program(contextlib.nullcontext)
    found = program(lambda: retape_torch.recompute(mode="loop", snapshots=3, stage=6))
    for a, b in zip(plain, found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


def test_a_tensor_from_the_middle_of_a_loop_is_not_in_the_graph() -> None:
    with pytest.raises(RuntimeError, match="not have been used in the graph"):
        PROGRAMS["partial_backward"](
            lambda: retape_torch.recompute(mode="loop", memory=160_000)
        )


def cell_over(steps: int, under: object) -> list[torch.Tensor]:
    torch.manual_seed(0)
    cell, inputs = nn.LSTMCell(4, 32), torch.randn(steps, 8, 4)
    for parameter in cell.parameters():
        parameter.grad = torch.zeros_like(parameter)
    h = c = torch.zeros(8, 32)
    with under:  # type: ignore[attr-defined]
        for t in range(steps):
            h, c = cell(inputs[t], (h, c))
        loss = h.square().mean() + c.mean()
    loss.backward()
    return [loss.detach(), *(p.grad for p in cell.parameters() if p.grad is not None)]


@pytest.mark.parametrize("memory", [100_000, 300_000])
def test_a_loop_stays_within_its_budget(memory: int) -> None:
    under = retape_torch.recompute(memory=memory, mode="loop")
    plain = cell_over(80, contextlib.nullcontext())
    brought = sum(t.nbytes for t in plain) + 80 * 8 * 4 * 4 + 3 * 8 * 32 * 4
    found: list[torch.Tensor] = []
    peak = peak_bytes(lambda: found.extend(cell_over(80, under)))
    assert all(torch.equal(a, b) for a, b in zip(plain, found, strict=True))
    # Parameters, their gradients, and the sum that becomes one at the end.
    assert peak <= memory + 3 * brought


@pytest.mark.parametrize("steps", [20, pytest.param(150, marks=pytest.mark.slow)])
def test_the_least_of_a_loop_is_enough_however_long_it_is(
    steps: int, accelerated: bool
) -> None:
    """What waits for the next snapshot grew with the length of the loop, once."""
    torch.manual_seed(0)
    cell, inputs = nn.LSTMCell(4, 64), torch.randn(steps, 8, 4)
    zero = torch.zeros(8, 64)
    for parameter in cell.parameters():
        parameter.grad = torch.zeros_like(parameter)

    def run(memory: int) -> None:
        h = c = zero
        with retape_torch.recompute(memory=memory, mode="loop"):
            for t in range(steps):
                h, c = cell(inputs[t], (h, c))
            loss = h.square().mean() + c.mean()
        loss.backward()

    with pytest.raises(BudgetError) as refused:
        run(1)
    least = refused.value.least
    assert least is not None
    assert peak_bytes(lambda: run(least)) <= least


def test_a_loop_in_few_snapshots_does_no_more_than_the_optimum_doubled() -> None:
    under = retape_torch.recompute(snapshots=4, stage=8, mode="loop")
    cell_over(100, under)
    report = under.report
    stages = -(-report.steps // 8)
    least = 8 * optimal_advances(stages, 4)
    assert report.stages >= stages
    assert report.recomputed - report.steps <= 2 * least


def test_a_refusal_inside_arithmetic_keeps_its_name() -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    x = torch.ones(2, requires_grad=True)
    with pytest.raises(UnsupportedError, match="inside an `autograd.Function`"):
        with retape_torch.recompute(memory="1MB", mode="loop"):
            Twice.apply(x)


def test_a_loop_is_reversed_once() -> None:
    w = torch.ones(2, requires_grad=True)
    with retape_torch.recompute(memory="1MB", mode="loop"):
        loss = (w * 3).sin().sum()
    loss.backward(retain_graph=True)
    with pytest.raises(UnsupportedError, match="reversed twice"):
        loss.backward()


def test_a_loop_has_no_second_derivative() -> None:
    w = torch.ones(2, requires_grad=True)
    with retape_torch.recompute(memory="1MB", mode="loop"):
        loss = (w * 3).sin().sum()
    with pytest.raises(UnsupportedError, match="create_graph=True"):
        torch.autograd.grad(loss, w, create_graph=True)


def test_what_the_program_asks_of_tensors_is_answered() -> None:
    w, x = torch.ones(2, requires_grad=True), torch.ones(2)
    with retape_torch.recompute(memory="1MB", mode="loop"):
        assert (w * x).requires_grad
        assert not (x * x).requires_grad
        with torch.no_grad():
            assert not (w * x).requires_grad
        loss = (w * x).sum()
    assert loss.requires_grad
    loss.backward()
    assert w.grad is not None and torch.equal(w.grad, torch.ones(2))


def test_unknown_randomness_is_refused() -> None:
    w = torch.ones(2, requires_grad=True)
    with pytest.raises(UnsupportedError, match="random numbers were drawn"):
        with retape_torch.recompute(memory="1MB", mode="loop"):
            w.sin()
            with torch._C.DisableTorchFunction():
                torch.rand(3)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mode": "loop", "verify": True}, "`verify`, `policy` and `store` are for"),
    ],
)
def test_wrong_modes_are_refused(options: dict[str, object], text: str) -> None:
    with pytest.raises(PlanError, match=text):
        retape_torch.recompute(memory="1MB", **options)  # type: ignore[arg-type]

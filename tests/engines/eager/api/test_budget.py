"""The budget, as the allocator counts it."""

import pytest
import torch
from torch import nn

from retape import BudgetError
from retape import torch as retape_torch
from tests.judges.torch.allocator import peak_bytes


def test_snapshots_are_bounded_by_their_number() -> None:
    net = nn.Sequential(*[m for _ in range(40) for m in (nn.Linear(9, 9), nn.ReLU())])
    x = torch.randn(8, 9)
    with retape_torch.recompute(snapshots=4, stage=4) as under:
        loss = net(x).square().sum()
    loss.backward()
    report = under.report
    assert report.steps == 82 and report.stages > 10
    assert report.snapshots - report.thinned <= 4


@pytest.mark.parametrize("create_graph", [False, True])
def test_a_gradient_inside_of_the_block_leaves_its_limits_in_force(
    create_graph: bool,
) -> None:
    x = torch.rand(32, 32, requires_grad=True)

    def peak_of(inside: bool) -> int:
        with retape_torch.recompute(snapshots=4, stage=8) as under:
            y = x
            for _ in range(20):
                y = y.sin()
            if inside:
                torch.autograd.grad(
                    y.sum(), x, retain_graph=True, create_graph=create_graph
                )
            for _ in range(400):
                y = y.sin()
            loss = y.sum()
        loss.backward()
        return under.report.peak_bytes

    assert peak_of(inside=True) <= 1.5 * peak_of(inside=False)


def test_room_is_made_before_the_first_convolution_that_is_wider_than_all() -> None:
    # Its weights, which are copied, take more than all that had been run until then.
    torch.manual_seed(0)
    wide = [nn.AdaptiveAvgPool2d(2), nn.Conv2d(32, 1024, 5, padding=2)]
    model = nn.Sequential(*(nn.Tanh() for _ in range(80)), *wide)
    x = torch.randn(4, 32, 16, 16, requires_grad=True)
    for each in (x, *model.parameters()):
        each.grad = torch.zeros_like(each)

    def train(memory: int) -> None:
        with retape_torch.recompute(memory=memory):
            loss = model(x).square().sum()
        loss.backward()

    with pytest.raises(BudgetError) as caught:
        train(1100)
    least = caught.value.least
    assert least is not None and peak_bytes(lambda: train(least)) <= least


def test_values_that_the_program_holds_are_in_the_least() -> None:
    held: list[torch.Tensor] = []

    def least(keep: bool) -> int:
        held.clear()
        x = torch.ones(64, 64, requires_grad=True)
        with pytest.raises(BudgetError) as caught:
            with retape_torch.recompute(memory=1100):
                y = x
                for _ in range(12):
                    y = torch.tanh(y * 1.5)
                    held.extend([y] if keep else [])
                y = y.sum()
        assert caught.value.least is not None
        return caught.value.least

    assert least(True) >= least(False) + 8 * 64 * 64 * 4

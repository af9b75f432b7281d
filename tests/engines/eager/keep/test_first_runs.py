"""First runs, which only rules lead: what they run again in budgets near the least."""

import contextlib
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from benchmarks.torch import workloads
from torch import Tensor, nn

from retape import BudgetError
from retape.torch import recompute
from tests.engines.eager.support.seams import forget

Loss = Callable[[], Tensor]
# Of what lies between the least budget and what keeps all.
SHARES = (0.0, 0.01, 0.04, 0.1, 0.3, 0.6)


def chain(layers: int = 60, width: int = 16) -> tuple[Loss, list[Tensor]]:
    torch.manual_seed(0)
    parts = [(nn.Linear(width, width), nn.ReLU()) for _ in range(layers)]
    net, x = nn.Sequential(*[m for pair in parts for m in pair]), torch.randn(64, width)
    return lambda: net(x).square().mean(), list(net.parameters())


class UNet(nn.Module):
    def __init__(self, width: int = 4, depth: int = 4) -> None:
        super().__init__()
        wide = [3, *(width * 2**k for k in range(1, depth + 1))]
        self.down = nn.ModuleList(nn.Conv2d(a, b, 3, 1, 1) for a, b in pairwise(wide))
        self.middle = nn.Conv2d(wide[-1], wide[-1], 3, 1, 1)
        self.up = nn.ModuleList(
            nn.Conv2d(2 * b, a, 3, 1, 1) for a, b in reversed(list(pairwise(wide)))
        )

    def forward(self, x: Tensor) -> Tensor:
        skips = list[Tensor]()
        for layer in self.down:
            skips.append(F.relu(layer(x)))
            x = F.max_pool2d(skips[-1], 2)
        x = F.relu(self.middle(x))
        for layer in self.up:
            wider = F.interpolate(x, scale_factor=2.0)
            x = F.relu(layer(torch.cat([wider, skips.pop()], 1)))
        return x


def unet() -> tuple[Loss, list[Tensor]]:
    torch.manual_seed(0)
    net, x = UNet(), torch.randn(2, 3, 32, 32)
    return lambda: net(x).square().mean(), list(net.parameters())


# What was run again of the operators, in brackets, while a snapshot could lack values
# and the backward had no plan; and the most that is now.
MOST: dict[str, tuple[Callable[[], tuple[Loss, list[Tensor]]], list[float]]] = {
    # (30.00, 9.75, 12.89, 1.84, 0.69, 0.39)
    "chain": (chain, [7.4, 5.1, 2.2, 1.6, 0.7, 0.4]),
    # (0.53, 0.53, 0.53, 0.53, 0.47, 0.09)
    "unet": (unet, [0.54, 0.54, 0.54, 0.54, 0.47, 0.1]),
    # (3.63, 5.80, 5.80, 1.95, 0.68, 0.39)
    "mlp": (
        lambda: workloads.plainly(workloads.SMALL["mlp"]()),
        [4.8, 3.6, 3.6, 1.6, 0.7, 0.4],
    ),
    # (1.85, 1.63, 1.44, 1.61, 0.83, 0.31)
    "gpt": (
        lambda: workloads.plainly(workloads.SMALL["gpt"]()),
        [0.9, 1.5, 1.0, 1.3, 0.6, 0.35],
    ),
}


def ran(loss: Loss, memory: int) -> Any:
    """The report of a run in a budget of which nothing is known."""
    forget()
    torch.manual_seed(1)
    under = recompute(memory=memory)
    with under:
        value = loss()
    value.backward()
    assert under.report.peak_bytes <= memory
    return under.report


def least(loss: Loss) -> int:
    memory = 1
    while True:
        try:
            ran(loss, memory)
            return memory
        except BudgetError as error:
            assert error.least is not None
            memory = error.least


@pytest.mark.slow("mlp")
@pytest.mark.parametrize("name", MOST)
def test_little_room_is_not_dearer_than_it_has_to_be(name: str) -> None:
    make, most = MOST[name]
    loss, _ = make()
    low, high = least(loss), ran(loss, 10**9).peak_bytes
    found = [ran(loss, low + int(share * (high - low))) for share in SHARES]
    again = [report.recomputed / report.steps for report in found]
    assert all(a <= b for a, b in zip(again, most, strict=True)), again


def test_what_the_program_holds_too_is_copied_as_far_as_that_fits(
    accelerated: bool,
) -> None:
    """It was run again in any memory; the program may write into it as it likes."""

    def found(under: Any) -> list[Tensor]:
        torch.manual_seed(0)
        h, states = torch.randn(40, 16), list[Tensor]()
        w = torch.randn(16, 16, requires_grad=True)
        with under:
            for _ in range(20):
                h = torch.tanh(h @ w)
                states.append(h)
            loss = torch.stack(states).square().sum()
        if isinstance(under, type(recompute(memory=1))):
            for state in states:
                state.data.zero_()
        return [loss.detach(), *torch.autograd.grad(loss, w)]

    with pytest.raises(BudgetError) as refused:
        found(recompute(memory=1))
    plain = found(contextlib.nullcontext())
    for memory in (refused.value.least, "10MB"):
        run = recompute(memory=memory)
        assert all(map(torch.equal, plain, found(run)))
        assert (run.report.recomputed == 0) == (memory == "10MB")

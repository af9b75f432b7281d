"""More memory never recomputes more: counted costs over budgets."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import retape.torch
from retape._errors import BudgetError
from retape.engines.eager.plan._known import programs
from retape.engines.eager.plan._learned import lessons_for
from retape.engines.eager.plan._rehearse import rehearse
from retape.torch import recompute
from tests.engines.eager.support.allocator import peak_bytes

BUDGETS = 12


class Scan(nn.Module):
    """A selective scan, written as a loop: its results are read at its end."""

    def __init__(self, width: int, state: int) -> None:
        super().__init__()
        self.enter = nn.Linear(width, 2 * width)
        self.decay = nn.Parameter(torch.rand(width, state))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        step, u = self.enter(self.norm(x)).chunk(2, -1)
        h = torch.zeros(x.shape[0], *self.decay.shape)
        seen: list[Tensor] = []
        for t in range(x.shape[1]):
            h = torch.exp(-step[:, t, :, None].sigmoid() * self.decay) * h
            h = h + u[:, t, :, None]
            seen.append(h.sum(-1))
        return x + torch.stack(seen, 1)


def scan() -> Callable[[], Tensor]:
    net, x = nn.Sequential(Scan(16, 8), Scan(16, 8)), torch.randn(2, 12, 16)
    return lambda: net(x).square().mean()


def layers() -> Callable[[], Tensor]:
    net, x = nn.LSTM(16, 16, num_layers=4), torch.randn(12, 4, 16)
    return lambda: net(x)[0].square().mean()


def attention() -> Callable[[], Tensor]:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    net, x = nn.TransformerEncoder(layer, 4), torch.randn(2, 12, 16)
    return lambda: net(x).square().mean()


def least(program: Callable[[], Tensor]) -> int:
    """The budget that the error messages lead to."""
    memory = 1
    while True:
        try:
            recompute(memory=memory)(program)().backward()
            return memory
        except BudgetError as error:
            assert error.least is not None
            memory = error.least


PROGRAMS = {"scan": scan, "layers": layers, "attention": attention}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("upwards", [True, False])
def test_more_memory_never_recomputes_more(
    name: str, upwards: bool, again: list[int]
) -> None:
    torch.manual_seed(0)
    program = PROGRAMS[name]()
    program().backward()
    low, most = least(program), peak_bytes(lambda: program().backward())
    budgets = [low + (most - low) * k // (BUDGETS - 1) for k in range(BUDGETS)]

    def run_again(memory: int) -> list[int]:
        """The steps that are run again in one run."""
        again.clear()
        with recompute(memory=memory) as run:
            loss = program()
        loss.backward()
        assert run.report.peak_bytes <= memory
        return list(again)

    for memory in budgets if upwards else budgets[::-1]:
        for _ in range(2):  # by rules; then it is known
            run_again(memory)
    steps = [run_again(memory) for memory in budgets]
    (known,) = programs._known.values()
    costs = known.measures[0].costs  # those that plans are made with
    found = [sum(costs[step] for step in each) for each in steps]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_plan_costs_what_was_rehearsed(name: str, again: list[int]) -> None:
    torch.manual_seed(0)
    program = PROGRAMS[name]()
    low, most = least(program), peak_bytes(lambda: program().backward())
    memory = low + (most - low) // 4
    for _ in range(3):
        again.clear()
        retape.torch.recompute(memory=memory)(program)().backward()
    known = next(reversed(programs._known.values()), None)
    assert known is not None
    assert lessons_for(memory).followed is not None
    choice = known.choices[memory]
    assert rehearse(choice.measured, choice.descents) == choice.cost
    assert sum(choice.measured.costs[step] for step in again) == choice.cost

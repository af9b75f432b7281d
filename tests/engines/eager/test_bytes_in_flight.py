"""Bytes that sending threads hold a moment too long are waited for, not refused."""

import threading
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

import retape.torch
from retape import BudgetError


@pytest.fixture
def alone() -> Iterator[None]:
    """A group of this process only."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def forward(held_for: float) -> torch.Tensor:
    """As with gloo's threads: what was read is held after the collective has ended."""
    h = torch.ones(64, 16, requires_grad=True)
    for _ in range(3):
        h = torch.sin(h)
        read = [torch.cos(h.detach()) for _ in range(4)]
        for each in read:
            h = h * functional.all_reduce(each, "sum", dist.group.WORLD)
        if held_for:
            threading.Timer(held_for, read.clear).start()
        del read, each
    return h.sum()


@pytest.mark.usefixtures("alone")
def test_a_budget_is_not_refused_for_what_a_slow_thread_holds() -> None:
    with pytest.raises(BudgetError) as caught, retape.torch.recompute(memory=100):
        kept = forward(0.0)
    assert kept.requires_grad and caught.value.least is not None
    with retape.torch.recompute(memory=caught.value.least) as run:
        loss = forward(held_for=0.3)
    loss.backward()
    assert run.report.peak_bytes <= caught.value.least

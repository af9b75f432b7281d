"""Bytes that sending threads hold a moment too long are waited for, not refused."""

import threading

import pytest
import torch

import retape.torch
from retape import BudgetError
from retape.engines.eager import _bytes_in_flight
from retape.engines.eager._bytes_in_flight import InFlight


def test_what_a_thread_lets_go_of_is_waited_for() -> None:
    held, left = InFlight(), [4, 4, 4, 0]
    held.read(2)
    assert held.wait_for(lambda: left.pop(0)) == 0
    assert left == []


def test_nothing_is_waited_for_where_it_cannot_help(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(_: float) -> None:
        raise AssertionError("it slept")

    monkeypatch.setattr(_bytes_in_flight.time, "sleep", never)
    assert InFlight().wait_for(lambda: 1) == 1  # no collective
    held = InFlight()
    held.read(2)
    assert held.wait_for(lambda: 5) == 5  # more than they read
    assert held.wait_for(lambda: -3) == -3


def test_patience_ends() -> None:
    held = InFlight()
    held.read(2)
    assert held.wait_for(lambda: 1) == 1
    assert held._patience <= 0


def test_a_budget_is_not_refused_for_what_a_slow_thread_holds() -> None:
    """A thread as gloo's: it holds what was read after the collective has ended."""
    import torch.distributed as dist

    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        assert _fits(_least(), held_for=0.3)
    finally:
        dist.destroy_process_group()


def _forward(held_for: float) -> torch.Tensor:
    import torch.distributed as dist
    import torch.distributed._functional_collectives as functional

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


def _least() -> int:
    with pytest.raises(BudgetError) as caught:
        with retape.torch.recompute(memory=100):
            _forward(0.0)
    assert caught.value.least is not None
    return caught.value.least


def _fits(memory: int, held_for: float) -> bool:
    with retape.torch.recompute(memory=memory):
        loss = _forward(held_for)
    loss.backward()
    return True

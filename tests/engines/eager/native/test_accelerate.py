"""Compiled code does the work of the Python recorder, and is really used.

That it gives the same bits in each way to run a program is judged by `tests/judges`.
"""

import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import retape.torch
from retape import MachineError
from retape.torch import recompute
from tests.engines.eager.support.seams import forget

pytestmark = pytest.mark.usefixtures("compiled")
Found = tuple[list[torch.Tensor], Any]


def chain(steps: int = 300) -> Found:
    w = torch.full((4, 4), 0.9, requires_grad=True)
    with recompute(memory=20_000) as run:
        h = torch.ones(4, 4)
        for _ in range(steps):
            h = torch.tanh(h * w) * 2
        loss = h.sum()
    loss.backward()
    assert w.grad is not None
    return [w.grad], run.report


def mixed() -> Found:
    """Steps that compiled code runs again, between steps that Python has to."""
    torch.manual_seed(0)
    w = torch.full((4, 4), 0.9, requires_grad=True)
    x = torch.linspace(0, 1, 16).reshape(4, 4).requires_grad_()
    with recompute(snapshots=4, stage=30) as run:
        h = x
        for _ in range(40):
            h = torch.dropout(torch.tanh(h * w), 0.2, True)
            state = h * 2
            state.add_(w)  # overwrites what the replay has made itself
            h = torch.cat([state.sin(), h]).reshape(2, 4, 4).sum(0)
        loss = h.sum()
    loss.backward()
    assert w.grad is not None and x.grad is not None
    return [w.grad, x.grad, torch.get_rng_state()], run.report


def looped(steps: int = 200) -> Found:
    w = torch.full((4, 4), 0.9, requires_grad=True)
    with recompute(memory=20_000, mode="loop") as run:
        h = torch.ones(4, 4)
        for _ in range(steps):
            first, second = torch.stack([h * w, h + w]).unbind(0)
            h = torch.tanh(first.add(second, alpha=0.5))
        loss = h.sum()
    loss.backward()
    assert w.grad is not None
    return [w.grad], run.report


def calls_in(job: Callable[[], object]) -> int:
    """Functions of Python that are called."""
    found = 0

    def count(frame: object, event: str, given: object) -> None:
        nonlocal found
        found += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        job()
    finally:
        sys.setprofile(before)
    return found


@pytest.mark.parametrize("program", [chain, mixed, looped])
def test_both_recorders_do_the_same_work(program: Callable[[], Found]) -> None:
    python, report = program()
    forget()  # else the second run has a plan
    retape.torch.accelerate()
    compiled, same = program()
    retape.torch.accelerate(False)
    assert all(map(torch.equal, python, compiled))
    assert report == same and same.recomputed > 100


def test_repeated_calls_do_not_reach_python() -> None:
    chain()  # all that is looked up once
    python = calls_in(chain)
    forget()
    retape.torch.accelerate()
    chain()
    forget()
    compiled = calls_in(chain)
    retape.torch.accelerate(False)
    assert 5 * compiled < python


def test_an_overwritten_parameter_is_found_when_accelerated(accelerated: bool) -> None:
    w = torch.full((4, 4), 0.9, requires_grad=True)
    for memory in ("1MB", 8_000):  # read by a formula, or by a replayed step first
        with recompute(memory=memory):
            h = torch.ones(4, 4)
            for _ in range(100):
                h = torch.tanh(h * w)
            loss = h.sum()
        with torch.no_grad():
            w.mul_(1.1)
        with pytest.raises(MachineError, match="overwritten before its backward"):
            loss.backward()


@pytest.mark.parametrize("mode", ["operators", "loop"])
def test_tensors_go_with_the_graph_without_the_collector(
    mode: Any, accelerated: bool
) -> None:
    w = torch.full((4, 4), 0.9, requires_grad=True)
    with recompute(memory="1MB", mode=mode):
        h = torch.tanh(w * w)
        alive = weakref.ref(h.untyped_storage() if mode == "operators" else h)
        loss = h.sin().sum()
    gc.disable()
    try:
        del h
        loss.backward()
        del loss
        assert alive() is None
    finally:
        gc.enable()

"""The size that a report gives for the record, against what Python's allocator saw."""

import contextlib
import gc
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import retape.torch
from retape.engines.eager._record_bytes import analysis_bytes
from retape.engines.eager.analysis import _least_memory
from retape.engines.eager.trace._run import Run
from retape.torch import recompute


def cells(steps: int = 100) -> Callable[[], Tensor]:
    torch.manual_seed(0)
    cell, inputs = nn.LSTMCell(8, 16), torch.randn(steps, 4, 8)

    def loss() -> Tensor:
        h = c = torch.zeros(4, 16)
        for x in inputs:
            h, c = cell(x, (h, c))
        return h.sum()

    return loss


def encoder() -> Callable[[], Tensor]:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    net, x = (
        nn.TransformerEncoder(layer, 12, enable_nested_tensor=False),
        torch.randn(2, 8, 16),
    )
    return lambda: net(x).sum()


@pytest.fixture(params=[False, True])
def compiled(request: pytest.FixtureRequest) -> Iterator[None]:
    retape.torch.accelerate(request.param)
    yield
    retape.torch.accelerate(False)


def python_bytes(loss: Callable[[], Tensor], under: Any) -> int:
    """What Python's objects take after a forward, its graph still there."""
    gc.collect()
    tracemalloc.start()
    with under:
        kept = loss()
    found = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    kept.backward()
    return found


@pytest.mark.parametrize("program", [cells, encoder])
@pytest.mark.parametrize("memory", [10**9, 1_500_000])
def test_the_record_takes_what_the_report_says(
    compiled: None, program: Callable[[], Callable[[], Tensor]], memory: int
) -> None:
    loss = program()
    with recompute(memory=memory):
        first = loss()
    first.backward()
    plain = python_bytes(loss, contextlib.nullcontext())
    run = recompute(memory=memory)
    taken = python_bytes(loss, run) - plain
    assert run.report.bookkeeping_bytes is not None
    assert 0.95 * taken <= run.report.bookkeeping_bytes <= 1.35 * taken


@pytest.mark.parametrize("program", [cells, encoder])
@pytest.mark.parametrize("parts", [1, 4])
def test_an_estimate_leaves_to_the_record_what_its_run_will_take(
    compiled: None, program: Callable[[], Callable[[], Tensor]], parts: int
) -> None:
    """It left room for notes on all values to budgets that hold a few."""
    loss = program()
    found = retape.torch.estimate(loss)
    assert found.known is not None
    memory = found.least + (found.enough - found.least) * parts // 5
    run = recompute(memory=memory)
    with run:
        kept = loss()
    kept.backward()
    left = found.known.measures[0].record_in(memory)
    assert run.report.bookkeeping_bytes is not None and run.report.plan == "followed"
    assert run.report.bookkeeping_bytes <= left <= 1.25 * run.report.bookkeeping_bytes


def test_the_plan_that_is_followed_is_counted() -> None:
    layers = (each for _ in range(24) for each in (nn.Linear(48, 48), nn.ReLU()))
    net, sizes = nn.Sequential(*layers), list[int]()
    for _ in range(4):
        run = recompute(memory=500_000)
        assert run.report.bookkeeping_bytes is None
        with run:
            found = net(torch.ones(256, 48)).square().mean()
        found.backward()
        sizes.append(run.report.bookkeeping_bytes or 0)
    assert run.report.recomputed > 0
    assert sizes[1] == pytest.approx(sizes[3], rel=0.01) and sizes[3] > 1.1 * sizes[0]


def test_a_loop_of_calls_is_not_counted() -> None:
    x = torch.ones(3, requires_grad=True)
    with recompute(memory="1MB", mode="loop") as run:
        found = torch.sin(x).sum()
    found.backward()
    assert run.report.bookkeeping_bytes is None


@pytest.mark.parametrize("memory", [10**9, 1_500])
def test_a_record_goes_with_its_graph_and_waits_for_no_collector(
    compiled: None, memory: int
) -> None:
    """A cycle kept it beside the next run's, 2.3 MB of 9 for 6,000 operators."""
    net = nn.Sequential(*(nn.Linear(4, 4) for _ in range(20)))

    def train() -> None:
        with recompute(memory=memory):
            loss = net(torch.ones(2, 4)).sum()
        loss.backward()

    for _ in range(3):  # the record of the first waits for its plan
        train()
    gc.collect()
    gc.disable()
    try:
        train()
        assert not any(type(each) is Run for each in gc.get_objects())
    finally:
        gc.enable()


def test_whether_a_budget_is_enough_is_told_in_the_room_that_is_left_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It took 280 bytes an operator; a budget leaves 160 to analyses of its record."""
    steps, found = 500, list[float]()
    inner = _least_memory.least_memory

    def counted(run: Run) -> int:
        tracemalloc.start()
        least = inner(run)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        found.append(most / analysis_bytes(run))
        return least

    monkeypatch.setattr(_least_memory, "least_memory", counted)
    x = torch.ones(8, requires_grad=True)
    with recompute(memory=1_000_000):
        y = x
        for _ in range(steps):
            y = torch.sin(y) * 2
        big = torch.ones(20_000).mul(y.sum())
        loss = big.sum()
    loss.backward()
    assert found and max(found) < 1

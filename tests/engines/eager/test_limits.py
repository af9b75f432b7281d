"""A budget on the host covers the record of the operators."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import retape
from retape.engines.eager._limits import SMALL_BUDGET, budget_for, room_for_tensors
from retape.engines.eager.keep._keeper import _on_host
from retape.torch import recompute

BENCHMARKS = Path(__file__).parents[3] / "benchmarks" / "torch"
AMOUNT = st.integers(0, 4 * SMALL_BUDGET)


@given(AMOUNT, AMOUNT)
def test_the_budget_for_tensors_is_the_least_with_room(tensors: int, record: int):
    budget = budget_for(tensors, record)
    assert room_for_tensors(budget, record) >= tensors
    assert budget == 0 or room_for_tensors(budget - 1, record) < tensors


@given(AMOUNT, AMOUNT, AMOUNT)
def test_a_larger_budget_has_no_less_room(one: int, other: int, record: int):
    low, high = sorted((one, other))
    assert room_for_tensors(low, record) <= room_for_tensors(high, record)
    if high > SMALL_BUDGET:
        assert room_for_tensors(high, record) + record == high


def cells(steps: int = 120) -> Callable[[], Tensor]:
    torch.manual_seed(0)
    cell, inputs = nn.LSTMCell(8, 16), torch.randn(steps, 4, 8)

    def loss() -> Tensor:
        h = c = torch.zeros(4, 16)
        for x in inputs:
            h, c = cell(x, (h, c))
        return h.sum()

    for each in cell.parameters():
        each.grad = torch.zeros_like(each)
    return loss


def run(loss: Callable[[], Tensor], memory: int) -> Any:
    with recompute(memory=memory) as under:
        value = loss()
    value.backward()
    return under.report


def refusal(loss: Callable[[], Tensor]) -> retape.BudgetError:
    with pytest.raises(retape.BudgetError) as refused:
        run(loss, 1)
    return refused.value


def test_many_small_operators_need_a_budget_for_their_record() -> None:
    loss = cells()
    refused = refusal(loss)
    assert "for the record of its operators" in str(refused)
    least = refused.least
    assert least is not None and least > 1_000_000
    for _ in range(3):
        assert run(loss, least).bookkeeping_bytes <= least
    with pytest.raises(retape.BudgetError):
        run(loss, least // 2)


def test_few_operators_leave_a_small_budget_to_tensors() -> None:
    refused = refusal(cells(20))
    assert "record" not in str(refused)
    assert refused.least is not None and refused.least < 50_000


@pytest.mark.skipif(sys.platform != "linux", reason="the counter is preloaded")
def test_the_whole_heap_is_within_the_budget() -> None:
    """Tensors, the record, plans and how they are found, by a counter of `malloc`."""
    command = [sys.executable, "heap.py", "--budgets", "3", "gpt", "fft"]
    done = subprocess.run(
        command, cwd=BENCHMARKS, capture_output=True, text=True, check=True
    )
    rows = re.findall(r"^ +([0-9.]+):(?: +[0-9.]+)+ +([0-9.]+)(\+?)", done.stdout, re.M)
    budgets = [float(budget) for budget, *_ in rows]
    assert len(budgets) == 6 and min(budgets) > SMALL_BUDGET / 1e6
    assert [row for row in rows if row[2]] == []
    assert any(float(most) > 0.9 * float(budget) for budget, most, _ in rows)


def test_the_peak_of_an_ample_run_is_a_budget_in_which_nothing_is_run_again() -> None:
    loss = cells()
    ample = run(loss, 10**9)
    assert ample.recomputed == 0 and ample.peak_bytes > ample.bookkeeping_bytes
    for _ in range(4):
        assert run(loss, ample.peak_bytes).recomputed == 0


def test_the_budget_of_an_accelerator_has_no_record_in_it() -> None:
    def trace(*devices: str) -> Any:
        tensors = (SimpleNamespace(device=torch.device(each)) for each in devices)
        known = enumerate(SimpleNamespace(tensor=each) for each in tensors)
        return SimpleNamespace(foreign=dict(known))

    assert _on_host(trace()) and _on_host(trace("cpu", "meta"))
    assert not _on_host(trace("cpu", "cuda:0"))

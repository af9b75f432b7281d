"""Budgets from the least to plain: each holds, and a larger one costs no more.

Bytes are those that the allocator counted, work is counted in operators.
"""

from itertools import accumulate
from pathlib import Path

import pytest
import torch

import retape.torch
from retape._errors import BudgetError
from retape.engines.eager.analysis._liveness import step_cotangents

BENCHMARKS = Path(__file__).parents[4] / "benchmarks" / "torch"
# The first run puts snapshots where few bytes cross, so the work falls in jumps of a
# block: it may rise again by so many forwards. Later runs take the least cost, not the
# fewest operators.
FIRST_JUMP, LATER_JUMP = 0.45, 0.25


@pytest.mark.usefixtures("tensors_alone")
@pytest.mark.parametrize("name", ["mlp", "gpt", "lstm", "resnet", "llama"])
def test_budgets_hold_and_more_memory_is_less_work(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "llama":
        pytest.importorskip("transformers")
    monkeypatch.syspath_prepend(BENCHMARKS)
    budgets = pytest.importorskip("budgets")
    # As long as the others: each step of it is ten operators.
    short = {"lstm": lambda: budgets.workloads.lstm(20, 32, 8)}
    rows = list(budgets.sweep({**budgets.SMALL, **short}[name](), count=4))
    assert [row.budget for row in rows if not row.holds] == []
    first, later = [row.first_again for row in rows], [row.again for row in rows]
    assert rises(first) <= FIRST_JUMP and rises(later) <= LATER_JUMP
    assert first[-1] < 0.5 < first[0]
    assert sum(later) <= 1.05 * sum(first)


def rises(work: list[float]) -> float:
    """How far a number rises above the least before it."""
    best = accumulate(work, min)
    return max(now - least for now, least in zip(work, best, strict=True))


def test_a_loop_keeps_its_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    budgets = pytest.importorskip("budgets")
    rows = list(budgets.sweep(budgets.SMALL["lstm"](), count=7, runs=1, mode="loop"))
    assert [row.budget for row in rows if not row.holds] == []
    work = [row.again for row in rows]
    assert work == sorted(work, reverse=True)


def test_a_loop_in_too_few_bytes_names_the_least() -> None:
    w = torch.ones(64, 64, requires_grad=True)
    # Its gradient, a call (twelve of its results), states of the generator, numbers.
    least = w.nbytes + 12 * w.nbytes + 2 * torch.get_rng_state().nbytes + 1024
    named = f"calls under .* it needs at least `{least}`"
    with pytest.raises(BudgetError, match=named) as caught:
        with retape.torch.recompute(memory=1000, mode="loop"):
            loss = torch.tanh(torch.ones(64, 64) @ w).sum()
    assert not loss.requires_grad and caught.value.least == least


@pytest.mark.parametrize("accelerated", [False, True])
@pytest.mark.parametrize(("transposed", "copies"), [(True, 3), (False, 2)])
def test_the_first_sum_of_a_viewed_parameter_is_a_tensor_of_its_own(
    transposed: bool, copies: int, accelerated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside cotangents of the parameter and their sum there is next to nothing."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    budgets = pytest.importorskip("budgets")
    w = torch.ones(64, 64, requires_grad=True)
    work = budgets.Workload(
        "a loop", [lambda h: (torch.tanh(h @ (w.t() if transposed else w)),)] * 40,
        [w], (torch.ones(2, 64),), lambda h: h.sum(),
    )  # fmt: skip
    retape.torch.accelerate(accelerated)
    try:
        rows = list(budgets.sweep(work, count=3))
    finally:
        retape.torch.accelerate(False)
    assert [row.budget for row in rows if not row.holds] == []
    least = rows[0]
    assert copies * w.nbytes < least.peak <= least.budget < 1.15 * least.peak


def test_what_gets_no_cotangent_takes_no_room() -> None:
    """The mask of a dropout is made by three operators without a backward."""
    x = torch.ones(64, 64, requires_grad=True)
    with retape.torch.recompute(memory="1GB") as run:
        torch.nn.functional.dropout(x, 0.5).sum()
        trace = run._open[0][0].run.trace  # type: ignore[index, union-attr]
    names = [str(step.signature.func) for step in trace.steps]
    passive = [step.signature.passive for step in trace.steps]
    found = [step_cotangents(trace, index) for index in range(len(trace.steps))]
    assert names[:4] == [
        "aten.empty_like.default", "aten.bernoulli_.float", "aten.div_.Scalar",
        "aten.mul.Tensor",
    ]  # fmt: skip
    assert passive[:4] == [True, True, True, False]
    assert found[:4] == [0, 0, 0, 2 * x.nbytes]


def test_sums_of_cotangents_are_counted() -> None:
    """A parameter read at each step has a sum as large as itself all the while."""
    w = torch.ones(64, 64, requires_grad=True)
    once, often = [], []
    for turns, found in ((1, once), (8, often)):
        with retape.torch.recompute(memory="1GB") as run:
            h = torch.ones(2, 64)
            for _ in range(turns):
                h = torch.tanh(h @ w)
            trace = run._open[0][0].run.trace  # type: ignore[index, union-attr]
        found.append(trace.sum_bytes())
    assert (once, often) == ([0], [w.nbytes])

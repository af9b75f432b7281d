"""The sweeps of the benchmark: budgets from the least to plain, of larger models."""

import pytest
from benchmarks.torch import curves, workloads
from benchmarks.torch.programs import Program

from tests.judges.torch.test_budgets import JUMP, rise

# Each step of it is ten operators.
SHORT = {"lstm": (20, 32, 8)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", "gpt", "lstm", "llama", "loop"])
def test_budgets_hold_and_more_memory_is_less_work(name: str) -> None:
    if name == "llama":
        pytest.importorskip("transformers")
    made = {**workloads.SMALL, "lstm": lambda: workloads.lstm(*SHORT["lstm"])}
    options = {"runs": 1, "mode": "loop"} if name == "loop" else {}
    work = made["lstm" if name == "loop" else name]()
    program = Program(*workloads.plainly(work))
    rows = list(curves.sweep(program, count=4, **options))
    assert [row.budget for row in rows if not row.holds] == []
    first, later = [row.first for row in rows], [row.again for row in rows]
    assert rise(first) <= JUMP and rise(later) <= JUMP
    # A loop runs each call again for its backward, whatever there is room for.
    most = 1.5 if name == "loop" else 0.5
    assert first[-1] < most and sum(later) <= 1.05 * sum(first)

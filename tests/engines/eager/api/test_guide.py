"""The printed comparison says what happens, and the names are those of the guide."""

import subprocess
import sys
from pathlib import Path

import pytest

import retape.torch

ROOT = Path(__file__).parents[4]


@pytest.mark.slow
def test_six_programs_are_exact_where_the_rival_is_not() -> None:
    command = [sys.executable, "-m", "benchmarks.torch.exactness"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    rows = done.stdout.splitlines()[2:]
    assert len(rows) == 6
    assert all(row.endswith("exact |") for row in rows)
    assert all("WRONG" in row or "fails" in row for row in rows)


def test_public_names() -> None:
    public = {name for name in vars(retape.torch) if not name.startswith("_")}
    assert public == {
        "Checkpointed", "CompilerBudget", "Graph", "MemoryMeter", "accelerate",
        "checkpoint", "checkpoint_sequential", "diagnose", "estimate",
        "matrix_products", "name_modules", "names", "recompute", "region",
    }  # fmt: skip

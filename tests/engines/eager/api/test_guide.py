"""Examples, docstrings and the printed comparison say what happens."""

import doctest
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import retape.engines.eager
import retape.torch

ROOT = Path(__file__).parents[4]
ENGINE = retape.engines.eager
MODULES = [
    module.name
    for module in pkgutil.walk_packages(ENGINE.__path__, f"{ENGINE.__name__}.")
    if not module.ispkg
]


@pytest.mark.parametrize("name", MODULES)
def test_docstrings_are_right(name: str) -> None:
    module = importlib.import_module(name)
    torch._dynamo.reset()  # a shape that another test compiled for makes sizes symbols
    names = {"torch": torch, "nn": torch.nn}
    assert doctest.testmod(module, extraglobs=names).failed == 0


def run(path: str) -> str:
    command = [sys.executable, str(ROOT / path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_six_programs_are_exact_where_the_rival_is_not() -> None:
    rows = run("benchmarks/torch/exactness.py").splitlines()[1:]
    assert len(rows) == 6
    assert all(row.endswith("exact") for row in rows)
    assert all("WRONG" in row or "fails" in row for row in rows)


def test_public_names() -> None:
    public = {name for name in vars(retape.torch) if not name.startswith("_")}
    assert public == {
        "Checkpointed", "CheckpointOptions", "CompiledPlan", "CompilerBudget",
        "EagerReport", "Estimate", "Graph",
        "MemoryMeter", "MutationError", "Node", "Point", "Recomputation",
        "RecomputeDepthError",
        "accelerate",
        "auto_checkpoint_by_depth", "auto_checkpoint_every_n", "checkpoint",
        "checkpoint_sequential", "diagnose", "estimate", "mark_checkpoint",
        "matrix_products",
        "on_recomputed", "recompute",
        "recompute_subgraph",
    }  # fmt: skip

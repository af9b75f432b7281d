"""The programs of the examples folder run, each in a small size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.docs.conftest import Run
from tests.docs.pages import ROOT

EXAMPLES = [
    path
    for path in sorted((ROOT / "examples").rglob("*.py"))
    if '__name__ == "__main__"' in path.read_text()
]
SMALL = {
    "adaptive_grid.py": ["--l", "53", "--n", "100", "--plan", "within"],
    "train.py": ["--steps", "3"],
    "run.py": ["run", "--steps", "300", "--cells", "60", "--snapshots", "9", "--quiet"],
    "kill.py": ["--steps", "2000", "--cells", "60", "--memory", "9 kB", "--kills", "1"],
    "hidden_state.py": ["--steps", "30"],
    "fortran_solver.py": ["--steps", "200"],
    "ring_mpi.py": ["--steps", "60", "--cells", "50"],
}
"""Arguments that make an example short."""

SLOW = {
    "adaptive_grid.py",
    "decoder/train.py",
    "optimisation.py",
    "seismic.py",
    "shallow_water/kill.py",
    "torch/budget.py",
}
"""Examples that take more than two processor seconds all the same."""


def test_every_example_is_found() -> None:
    names = {str(path.relative_to(ROOT / "examples")) for path in EXAMPLES}
    assert {"adaptive_grid.py", "torch/budget.py", "vlad/from_python.py"} <= names
    assert names >= {"decoder/train.py", "shallow_water/kill.py"}
    assert SMALL.keys() <= {path.name for path in EXAMPLES}


def parameters() -> list[Any]:
    names = {str(path.relative_to(ROOT / "examples")): path for path in EXAMPLES}
    return [
        pytest.param(p, id=n, marks=pytest.mark.slow if n in SLOW else ())
        for n, p in names.items()
    ]


@pytest.mark.parametrize("path", parameters())
def test_an_example_runs(path: Path, run: Run, tmp_path: Path) -> None:
    arguments = SMALL.get(path.name, [])
    said = run(lambda warm: warm.script(path, arguments, tmp_path), path.read_text())
    assert said.strip(), "an example shows something"

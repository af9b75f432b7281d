"""Every example of a docstring prints what it shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.docs.conftest import Run
from tests.docs.pages import ROOT

SOURCES = ROOT / "src"
SLOW = {
    "retape.diffrax._adjoint",
    "retape.equinox._loops",
    "retape.engines.eager.api._compiler_budget",
    "retape.engines.eager.api._memory_meter",
    "retape.engines.jaxpr.api._transform",
    "retape.engines.jaxpr.api.inspect._measure",
    "retape.engines.jaxpr.layers.planner._advise",
    "retape.lightning._callback",
    "retape.nnx._remat_scan",
    "retape.optimistix._adjoint",
    "retape.plan._constructors",
    "retape.transformers._callback",
}
"""Modules whose examples take more than two processor seconds."""


def modules() -> dict[str, Path]:
    """All modules that have an example, by name, without importing any."""
    found: dict[str, Path] = {}
    for path in sorted(SOURCES.rglob("*.py")):
        parts = path.relative_to(SOURCES).with_suffix("").parts
        if parts[-1] != "__main__" and ">>> " in path.read_text():
            found[".".join(p for p in parts if p != "__init__")] = path
    return found


def parameters() -> list[Any]:
    """The modules of each package, which share a process; slow ones are alone."""
    found: dict[str, list[str]] = {}
    for name, path in modules().items():
        folder = ".".join(path.relative_to(SOURCES).parent.parts[:4])
        found.setdefault(name if name in SLOW else folder, []).append(name)
    return [
        pytest.param(names, id=name, marks=pytest.mark.slow if name in SLOW else ())
        for name, names in found.items()
    ]


@pytest.mark.parametrize("names", parameters())
def test_docstring_examples_print_what_they_show(
    names: list[str], run: Run, tmp_path: Path
) -> None:
    sources = "".join(modules()[name].read_text() for name in names)
    examples = re.findall(r"^\s*(?:>>>|\.\.\.) (.*)$", sources, re.MULTILINE)
    assert examples
    # What is loaded before: what the modules' examples or their own places name.
    run(lambda warm: warm.docstrings(names, tmp_path), "\n".join(names + examples))


def test_what_is_slow_is_there() -> None:
    assert modules().keys() >= SLOW

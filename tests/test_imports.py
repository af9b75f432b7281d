"""`import retape` loads no framework, in a process of its own."""

import importlib
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

import retape
from retape import _extras

HEAVY = ("jax", "torch", "matplotlib", "flax", "scipy")


def loaded_by(statement: str) -> list[str]:
    """Which of the heavy packages are loaded after a statement."""
    code = (
        f"{statement}\nimport sys\n"
        f"print(*[name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    "statement",
    [
        "import retape",
        "import retape.schedule, retape.storage, retape.driver",
        "import retape.viz",
        "import retape.cli",
        "import retape\n"
        "retape.fixed_space(snapshots=3).predict(100)\n"
        "from retape.driver import ToyMachine, run\n"
        "run(ToyMachine(9), retape.logarithmic())",
    ],
)
def test_the_framework_free_part_is_framework_free(statement):
    assert loaded_by(statement) == []


def test_a_bare_import_loads_neither_numpy_nor_what_runs_a_program():
    code = (
        "import sys, retape\n"
        "print(*[name for name in ('numpy', 'retape.driver', 'retape.storage')"
        " if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == [], done.stderr


@pytest.mark.parametrize("part", ["jax", "torch", "native", "viz"])
def test_a_part_that_was_not_imported_is_told_how(part):
    done = subprocess.run(
        [sys.executable, "-c", f"import retape\nretape.{part}"],
        capture_output=True,
        text=True,
    )
    assert f"Write `import retape.{part}` beside it." in done.stderr
    assert loaded_by("import retape\nhasattr(retape, 'fixed')") == []


def test_every_part_that_is_not_imported_is_a_module():
    for part in retape._PARTS:
        assert find_spec(f"retape.{part}") is not None


def test_the_check_sees_a_framework():
    assert loaded_by("import retape, scipy") == ["scipy"]


MISSING = """
import retape.jax | jax | jax
import retape.jax | scipy | jax
import retape.nnx | flax | nnx
import retape.nnx | jax | nnx
import retape.equinox | equinox | equinox
import retape.diffrax | diffrax | diffrax
import retape.diffrax | jax | diffrax
import retape.optimistix | optimistix | optimistix
import retape.torch | torch | torch
import retape.transformers | accelerate | transformers
import retape.lightning | lightning | lightning
from retape.viz import draw_figure; draw_figure([]) | matplotlib | plot
"""
"""A statement, what is not installed, and the extra that has it."""


@pytest.mark.slow(
    "import retape.transformers | accelerate | transformers",
    "import retape.lightning | lightning | lightning",
)
@pytest.mark.parametrize("row", MISSING.strip().splitlines())
def test_a_framework_that_is_not_installed(row):
    """As where it was never installed: it is neither found nor imported."""
    statement, missing, extra = row.split(" | ")
    code = (
        "import sys\n"
        f"sys.modules[{missing!r}] = None\n"
        "import retape\n"
        f"try: {statement}\n"
        "except ImportError as error:\n"
        "    print(isinstance(error, retape.RetapeError), error.name, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(f"True {missing} `{missing}` cannot be imported")
    # The tests run in a checkout, where the line works before there is a release.
    assert re.search(rf'Run `pip install -e ".+\[{extra}\]"`\.', done.stdout)


def test_what_is_installed_is_told_to_take_the_release(monkeypatch):
    monkeypatch.setattr(_extras, "__file__", "/lib/site-packages/retape/_extras.py")
    assert _extras.install_line("jax") == 'pip install "retape[jax]"'


@pytest.mark.parametrize("name", retape._ELSEWHERE)
def test_a_name_that_is_elsewhere_is_told_where(name):
    part = f"retape.{retape._ELSEWHERE[name]}"
    with pytest.raises(AttributeError, match=f"Write `import {part}`"):
        getattr(retape, name)
    assert hasattr(importlib.import_module(part), name)

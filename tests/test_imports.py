"""`import retape` loads no framework, in a process of its own."""

import subprocess
import sys

import pytest

HEAVY = ("numpy", "jax", "torch", "matplotlib", "flax", "scipy")


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


def test_the_check_sees_a_framework():
    assert loaded_by("import retape, numpy") == ["numpy"]

"""Loops that each device leaves at its own time wait for no other device.

A wrong one hangs: so they run in a process of its own, which is given some minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from tests.engines.jaxpr.support import seams

STEPS = (
    "direct",
    "row_by_number",
    "rows_of_a_scan",
    "branch",
    "inner_loop",
    "ruled",
    "again",
)
INSIDE = ("direct", "inner_loop")
CASES = [f"{step}, outside" for step in STEPS] + [f"{step}, inside" for step in INSIDE]


@pytest.fixture(scope="module")
def found() -> dict[str, float]:
    script = Path(__file__).parents[1] / "support" / "own_lengths.py"
    done = subprocess.run(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=400,
        check=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )
    return json.loads(done.stdout[done.stdout.rindex("{") :])


@pytest.mark.slow  # one process runs all of them, for most of a minute
@pytest.mark.parametrize("case", [*CASES, "forward over reverse"])
def test_each_device_leaves_at_its_own_time(found: dict[str, float], case: str) -> None:
    assert found[case] < 1e-12


@pytest.mark.slow
def test_the_oracle_catches_a_small_lie(found: dict[str, float]) -> None:
    assert 1e-9 < found["a small lie"] < 1e-4
    assert found.keys() == {*CASES, "forward over reverse", "a small lie"}


def test_a_program_without_such_a_loop_is_left_alone() -> None:
    def run(x):
        return jax.lax.while_loop(lambda v: v < 5, lambda v: v * jnp.exp(x), x)

    before, after = (
        seams.form_after(name, run, 1.0) for name in ("on_device", "hoist_pvary")
    )
    assert str(before) == str(after)

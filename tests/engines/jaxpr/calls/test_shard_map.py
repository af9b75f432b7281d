"""Several devices: `shard_map`, sharded arguments, meshes, two processes.

The number of virtual devices is fixed when JAX starts, so the programs run in
processes of their own, which are given up after ten minutes if they wait; see
`devices.py`, `meshes.py`, `waiting.py`, `own_lengths.py` and `two_processes.py`.
"""

from __future__ import annotations

import functools
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.engines.jaxpr.support.programs import assert_close

SCRIPTS = Path(__file__).parents[1] / "support"
ON_MESHES = (
    "checkpoint, alone", "checkpoint, sqrt", "checkpoint, every_n",
    "checkpoint, selective", "checkpoint, within", "scan, levels", "scan, policy",
    "scan, sqrt", "scan, plan", "within, inside shard_map", "while_loop",
    "store on disk", "health", "vmap", "vmap over rows that are spread",
)  # fmt: skip
LEFT_AT_OWN_TIME = (
    "direct", "row_by_number", "rows_of_a_scan", "branch", "inner_loop", "ruled",
    "again",
)  # fmt: skip
CASES: dict[str, list[str]] = {
    "devices.py": [
        "sharded arguments (Auto)",
        "sharded arguments (Explicit)",
        "checkpointed inside (Auto)",
        "gradient inside (Auto)",
        "gradient outside (Auto)",
        "a loop around (Auto)",
        "talking, checkpointed inside (Auto)",
        "talking, checkpointed inside (Explicit)",
        "talking, gradient outside (Auto)",
        "as many steps as each device needs (Auto)",
        "one gradient, its argument anywhere (Auto)",
    ],
    "waiting.py": [
        "twice, inside (Auto)",
        "lanes (Auto)",
        "untold (Auto)",
        "among (Explicit)",
    ],
    "meshes.py": [f"{n} ({kind})" for kind in ("Auto", "Explicit") for n in ON_MESHES],
    "own_lengths.py": [f"{step}, outside" for step in LEFT_AT_OWN_TIME]
    + ["direct, inside", "inner_loop, inside", "forward over reverse"],
}
LAYOUTS = ["fully sharded", "data parallel", "tensor parallel"]
LONG = {"meshes.py", "own_lengths.py"}
"""One process runs all of its programs, for one minute or two."""


def start(script: str, *args: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(SCRIPTS / script), *map(str, args)]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def finish(process: subprocess.Popen[str]) -> Any:
    try:
        out, _ = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == 0
    # What a library prints on the way comes in lines before that of the object.
    return json.loads(out.splitlines()[-1])


@functools.cache
def printed(script: str) -> dict[str, Any]:
    return finish(start(script))


def compared(script: str) -> dict[str, float]:
    """The difference from plain JAX of each case."""
    found = printed(script)
    return found.get("compared", found.get("found", found))


def slowly(script: str, *more: str) -> Any:
    marks = [pytest.mark.slow] if script in LONG else []
    return pytest.param(script, *more, marks=marks)


@pytest.mark.parametrize(
    ("script", "case"),
    [slowly(script, case) for script in CASES for case in CASES[script]],
)
def test_equal_to_plain_jax(script: str, case: str) -> None:
    assert compared(script)[case] < 1e-12


@pytest.mark.parametrize("script", [slowly(name) for name in CASES])
def test_every_case_is_looked_at(script: str) -> None:
    beside = {"bytes on one device", "bytes on each of eight", "a small lie"}
    assert compared(script).keys() - beside == set(CASES[script])


def test_snapshots_keep_their_sharding() -> None:
    """Memory on each of eight devices is an eighth, but for the controller's."""
    found = compared("devices.py")
    alone, shared = found["bytes on one device"], found["bytes on each of eight"]
    assert alone > 3_000_000
    assert shared < alone / 8 + 20_000


def test_what_would_wait_is_refused_before_it_starts() -> None:
    said = (
        r"^The collective `psum\w*` at .*waiting.py:\d+.* along the mesh axis `d` take "
        r"each its own number of steps.*`jax.lax.pmax`.*pass `retape.fixed_space`"
    )
    assert re.match(said, printed("waiting.py")["refused"]["budget"])


@pytest.mark.slow
def test_the_oracle_catches_a_small_lie() -> None:
    assert 1e-9 < compared("own_lengths.py")["a small lie"] < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_budget_is_kept_on_each_device(layout: str) -> None:
    found = printed("meshes.py")["held"]
    assert list(found) == LAYOUTS
    plain, tried = found[layout]["plain"], found[layout]["budgets"]
    kept = [b for b in tried if "taken" in b]
    assert all(b["taken"] <= b["budget"] and b["difference"] < 1e-12 for b in kept)
    refused = [b for b in tried if "least" in b]
    assert len(kept) == 2 and len(refused) == 1
    # Nothing is refused that plain reverse mode meets, and each error names more.
    assert all(b["budget"] < b["least"] <= plain for b in refused)


def simulate(x: Any) -> Any:
    step = lambda i, v: jnp.sin(v) * 1.1  # noqa: E731
    return jnp.sum(jax.lax.fori_loop(0, 11, step, x) ** 2)


@pytest.mark.slow
def test_two_processes() -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    processes = [start("two_processes.py", i, port) for i in range(2)]
    parts = sorted((finish(p) for p in processes), key=lambda p: p["from"])
    got = np.concatenate([p["part"] for p in parts])
    assert_close(got, jax.grad(simulate)(jnp.linspace(0.1, 3.0, 8)))

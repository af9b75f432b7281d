"""Several devices: `shard_map`, sharded arguments, two processes.

The number of virtual devices is fixed when JAX starts, so the programs run in
processes of their own; see `devices.py` and `two_processes.py`.
"""

from __future__ import annotations

import json
import os
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
CASES = [
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
]


def start(script: str, *args: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(SCRIPTS / script), *map(str, args)]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def finish(process: subprocess.Popen[str]) -> Any:
    out, _ = process.communicate(timeout=600)
    assert process.returncode == 0
    # What a library prints on the way comes in lines before that of the object.
    return json.loads(out.splitlines()[-1])


@pytest.fixture(scope="module")
def found() -> dict[str, float]:
    return finish(start("devices.py"))


@pytest.mark.slow(
    "sharded arguments (Auto)",
    "sharded arguments (Explicit)",
    "checkpointed inside (Auto)",
)
@pytest.mark.parametrize("case", CASES)
def test_equal_to_plain_reverse_mode(found: dict[str, float], case: str) -> None:
    assert found[case] < 1e-12


def test_every_case_is_looked_at(found: dict[str, float]) -> None:
    assert {k for k in found if k.endswith(")")} == set(CASES)


def test_snapshots_keep_their_sharding(found: dict[str, float]) -> None:
    """Memory on each of eight devices is an eighth, but for the controller's."""
    alone, shared = found["bytes on one device"], found["bytes on each of eight"]
    assert alone > 3_000_000
    assert shared < alone / 8 + 20_000


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

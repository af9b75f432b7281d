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

ROOT = Path(__file__).parents[4]
FEW = (
    "devices.py", "checkpointed inside", "gradient outside", "a loop around",
    "talking, gradient outside",
)  # fmt: skip
SOME = ("waiting.py", "twice, inside", "lanes")
"""All but these: compiled in half the time."""
CASES = {
    FEW: 6,
    ("devices.py",): 10,
    SOME: 2,
    ("waiting.py",): 4,
    ("meshes.py",): 48,
    ("own_lengths.py",): 10,
}
"""How many programs each compares with plain JAX."""
LAYOUTS = ["fully sharded", "data parallel", "tensor parallel"]
OFTEN = [FEW, SOME]
"""The others take one process a minute or two."""


def start(script: str, *args: object, devices: int = 8) -> subprocess.Popen[str]:
    flag = f"--xla_force_host_platform_device_count={devices}"
    flags = f"{os.environ.get('XLA_FLAGS', '')} {flag}"
    module = f"tests.engines.jaxpr.support.{script.removesuffix('.py')}"
    return subprocess.Popen(
        [sys.executable, "-m", module, *map(str, args)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
        cwd=ROOT,
    )


def finish(process: subprocess.Popen[str]) -> Any:
    try:
        out, _ = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == 0
    # What a library prints on the way comes in lines before that of the object.
    return json.loads(out.splitlines()[-1])


@functools.cache
def printed(*command: str) -> dict[str, Any]:
    return finish(start(*command))


@pytest.mark.parametrize(
    "command",
    [pytest.param(c, marks=() if c in OFTEN else pytest.mark.slow) for c in CASES],
    ids=", but ".join,
)
def test_equal_to_plain_jax(command: tuple[str, ...]) -> None:
    found = printed(*command)
    beside = {"bytes on one device", "bytes on each of eight"}
    beside |= {"a small lie", "explained"}
    differences = found.get("compared", found.get("found", found))
    compared = {k: v for k, v in differences.items() if k not in beside}
    assert len(compared) == CASES[command]
    assert {k: v for k, v in compared.items() if not v < 1e-12} == {}


def test_snapshots_keep_their_sharding() -> None:
    """Memory on each of eight devices is an eighth, but for the controller's."""
    found = printed(*FEW)
    alone, shared = found["bytes on one device"], found["bytes on each of eight"]
    assert alone > 3_000_000
    assert shared < alone / 8 + 20_000
    assert "on 8 devices together" in found["explained"]


def test_what_would_wait_is_refused_before_it_starts() -> None:
    said = (
        r"^The collective `psum\w*` at .*waiting.py:\d+.* along the mesh axis `d` take "
        r"each its own number of steps.*`jax.lax.pmax`.*pass `retape.fixed_space`"
    )
    assert re.match(said, printed(*SOME)["refused"]["budget"])


@pytest.mark.slow
def test_the_oracle_catches_a_small_lie() -> None:
    assert 1e-9 < printed("own_lengths.py")["a small lie"] < 1e-4


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
    # The same is said of arrays and of types, and it is what is refused in earnest.
    (first, least), *others = found[layout]["asked"]
    assert least == refused[0]["least"] and len(others) == 2
    for peaks, again in others:
        assert again == least and np.allclose(peaks, first, rtol=1e-3)


def simulate(x: Any) -> Any:
    step = lambda i, v: jnp.sin(v) * 1.1  # noqa: E731
    return jnp.sum(jax.lax.fori_loop(0, 11, step, x) ** 2)


@pytest.mark.slow
def test_two_processes() -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    processes = [start("two_processes.py", i, port, devices=1) for i in range(2)]
    parts = sorted((finish(p) for p in processes), key=lambda p: p["from"])
    got = np.concatenate([p["part"] for p in parts])
    assert_close(got, jax.grad(simulate)(jnp.linspace(0.1, 3.0, 8)))

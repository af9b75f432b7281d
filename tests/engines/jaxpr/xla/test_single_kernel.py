"""Sweeps as single kernels: what may be one, and that it is the same program.

XLA stops the whole process at some of what it cannot emit, so every operation that is
let in is compiled here, in a process of its own.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import jaxpr_as_fun

import retape
import retape.jax
from tests.engines.jaxpr.support import seams

PLAN = retape.fixed_space(snapshots=4, stage=3)


def whole(fun: Any, *args: Any) -> bool:
    """Whether a sweep is marked as one kernel, from its first turn to its last."""
    return jax.jit(fun).lower(*args).as_text().count("inlineable") == 1


def walk(x: Any, w: Any) -> Any:
    """A loop of unknown length, with a branch and a shorter loop inside."""

    def body(c: Any) -> Any:
        i, x = c
        x = lax.cond(jnp.sum(x) > 0, lambda x: jnp.sin(w * x), lambda x: x * w, x)
        x = lax.while_loop(lambda v: v[0] > 1.0, lambda v: v * 0.7, x)
        return i + 1, x.at[i % 3].set(jnp.cos(x[0]) + w)

    going = lambda c: (c[0] < 23) & (c[1][0] < 9.0)  # noqa: E731
    return jnp.sum(lax.while_loop(going, body, (0, x))[1] ** 2)


POINT = (np.linspace(0.1, 1.7, 11), np.float64(1.3))


ALONE = """
    import jax, numpy as np, retape, retape.jax
    from tests.engines.jaxpr.xla.test_single_kernel import PLAN, POINT, walk
    jax.config.update("jax_enable_x64", True)
    gradient = jax.jit(retape.jax.grad(walk, argnums=(0, 1), plan=PLAN))
    lowered = gradient.lower(*POINT)
    compiled = lowered.compile()
    for part in compiled(*POINT):
        print(np.asarray(part).tobytes().hex())
    print(compiled.memory_analysis().temp_size_in_bytes)
    print(lowered.as_text().count("inlineable"))
"""


@pytest.mark.slow
def test_one_kernel_gives_the_same_bits_and_takes_no_more_memory() -> None:
    """Against the same process with kernels switched off by the environment."""
    one, many = (_alone(ALONE, RETAPE_ONE_KERNEL=k).split() for k in ("1", "0"))
    assert [found.pop() for found in (one, many)] == ["1", "0"]
    sizes = [int(found.pop()) for found in (one, many)]
    assert sizes[0] <= sizes[1] + 1024
    assert one == many
    by_x, by_w = (np.frombuffer(bytes.fromhex(part)) for part in one)
    expected = jax.jacfwd(walk, (0, 1))(*POINT)
    np.testing.assert_allclose(by_x, expected[0], rtol=1e-12)
    np.testing.assert_allclose(by_w, [expected[1]], rtol=1e-12)


def large(x: Any, w: Any) -> Any:
    return walk(jnp.ones(seams.LARGEST + 1) * x[0], w)


def matrices(x: Any, w: Any) -> Any:
    m = jnp.eye(x.size) * w
    return jnp.sum(lax.fori_loop(0, 20, lambda i, x: jnp.sin(m @ x), x))


def complexes(x: Any, w: Any) -> Any:
    z = lax.fori_loop(0, 20, lambda i, z: z * jnp.exp(1j * w), x + 0j)
    return jnp.sum(jnp.abs(z))


def test_the_paper_s_example_is_one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    examples = str(Path(__file__).parents[4] / "examples")
    monkeypatch.syspath_prepend(examples)
    adaptive_grid = importlib.import_module("adaptive_grid")
    plan = retape.fixed_space(snapshots=4)
    fun = retape.jax.grad(lambda x: adaptive_grid.program(x, 53.0), plan=plan)
    with jax.enable_x64(True):
        assert whole(fun, np.arange(40.0, 0.0, -1.0))


@pytest.mark.slow("matrices")
@pytest.mark.parametrize("fun", [large, matrices, complexes])
def test_what_is_not_small_elementwise_work_stays_as_it_is(fun: Any) -> None:
    assert not whole(retape.jax.grad(fun, plan=PLAN), *POINT)
    assert whole(retape.jax.grad(walk, plan=PLAN), *POINT)


RESULTS: dict[str, Any] = {
    "its inputs": lambda x, y: [x, x, jnp.sin(y), y],
    "one twice": lambda x, y: [jnp.sin(x)] * 2,
    "a constant": lambda x, y: [jnp.sin(x), jnp.ones(5)],
}


@pytest.mark.parametrize("what", RESULTS)
def test_what_a_kernel_gives_back_has_its_place_among_equations(what: str) -> None:
    given = jnp.linspace(0.0, 1.0, 5), jnp.arange(5.0)
    marked = seams.kernel(RESULTS[what], *given)
    found = jax.jit(jaxpr_as_fun(marked))(*given)
    for a, b in zip(found, RESULTS[what](*given), strict=True):
        assert jnp.allclose(a, b, rtol=1e-14)


@pytest.mark.slow
def test_a_batch_of_sweeps_is_judged_as_a_batch() -> None:
    """Rows taken at an index for each become a gather, which is not let in."""
    many = jax.vmap(retape.jax.grad(walk, plan=PLAN), (0, None))
    xs = np.linspace(0.1, 1.7, 33).reshape(3, 11)
    assert not whole(many, xs, POINT[1])
    got = jax.jit(many)(xs, POINT[1])
    expected = jax.vmap(jax.jacfwd(walk), (0, None))(xs, POINT[1])
    np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.slow
def test_a_sweep_over_several_devices_is_not_marked() -> None:
    run = """
        import jax, jax.numpy as jnp
        from jax.sharding import NamedSharding, PartitionSpec as P
        import retape, retape.jax
        mesh = jax.make_mesh((4,), ("i",))
        x = jax.device_put(jnp.linspace(0.1, 1.0, 8), NamedSharding(mesh, P("i")))
        def fun(x):
            going = lambda v: jnp.sum(v) < 400.0
            return jnp.sum(jax.lax.while_loop(going, lambda v: v * 1.3 + jnp.sin(v), x))
        gradient = jax.jit(retape.jax.grad(fun, plan=retape.fixed_space(snapshots=3)))
        assert "retape_kernel" in gradient.lower(x).as_text()
        assert "inlineable" not in gradient.lower(x).as_text()
        assert "inlineable" in gradient.lower(jnp.ones(8)).as_text()
        print(jnp.allclose(gradient(x), jax.jacfwd(fun)(x)))
    """
    assert _alone(run, devices=4).split() == ["True"]


def test_a_release_of_jax_that_was_not_tried_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert retape.jax.explain(walk, *POINT).untried is None
    monkeypatch.setattr(jax, "__version_info__", (0, 999, 0))
    monkeypatch.setattr(jax, "__version__", "0.999.0")
    said = str(retape.jax.explain(walk, *POINT))
    assert said.count("JAX 0.999.0 was not tried: no sweep is made one kernel") == 1


AROUND = """
    import jax, jax.numpy as jnp, retape.equinox
    from jax import lax
    jax.config.update("jax_enable_x64", True)
    def fun(x):
        def step(c):
            i, rows = c
            return i + 1, rows.at[i % 3].set(rows[(i + 1) % 3] * x + 1.0)
        rows = retape.equinox.while_loop(
            lambda c: c[0] < 9, step, (0, x * jnp.ones(3)),
            kind="checkpointed", max_steps=12, buffers=lambda c: c[1])[1]
        return rows @ jnp.arange(1.0, 4.0)
    x, slope = jnp.asarray(0.7), jax.grad(fun)
    assert "inlineable" in jax.jit(slope).lower(x).as_text()
    alone = jax.jit(slope)(x)
    around = AROUND
    print(jnp.allclose(jax.jit(around)(x), 2 * alone))
"""
PLACES = {
    "before a loop that XLA makes one kernel": (
        "lambda x: (lambda s: lax.fori_loop(0, 2, lambda i, c: c + s, 0.0))(slope(x))"
    ),
    "in a loop that does not change its argument": (
        "lambda x: lax.fori_loop(0, 2, lambda i, c: c + slope(x), 0.0)"
    ),
    "in a scan that hands its argument on": (
        "lambda x: lax.scan(lambda c, _: (c, slope(c)), x, None, 2)[1].sum()"
    ),
}


@pytest.mark.slow(*list(PLACES)[1:])
@pytest.mark.parametrize("place", PLACES)
def test_a_kernel_may_stand_beside_loops(place: str) -> None:
    """Its counter is a constant, which XLA drew into it, and then stopped."""
    assert _alone(AROUND.replace("= AROUND", f"= {PLACES[place]}")).split() == ["True"]


# Every operation that is let in -----------------------------------------------------


@pytest.mark.slow
def test_every_operation_that_is_let_in_is_compiled_and_right() -> None:
    run = """
        from tests.engines.jaxpr.support.kernel_operations import main
        main()
    """
    assert _alone(run).split() == [], "add a line to support/kernel_operations.py"


def _alone(code: str, devices: int = 1, **env: str) -> str:
    """What a program prints in a process of its own, which must end well."""
    flags = f"--xla_force_host_platform_device_count={devices}"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags} | env,
        cwd=Path(__file__).parents[4],
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout

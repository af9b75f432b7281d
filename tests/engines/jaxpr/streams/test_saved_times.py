"""Third-party loops that write what they pass into buffers: diffrax's and Equinox's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import retape
import retape.jax
from tests.engines.jaxpr.support.programs import assert_close

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    diffrax = pytest.importorskip("diffrax")
    equinox = pytest.importorskip("equinox.internal")

PLAN = retape.fixed_space(snapshots=3, stage=3)
P = np.asarray([1.2, 0.8, 0.3])
pytestmark = pytest.mark.filterwarnings("ignore")


def solved(p: Any, saveat: Any, adjoint: Any, **options: Any) -> Any:
    def field(t: Any, y: Any, args: Any) -> Any:
        position, speed = y
        return speed, p[0] * (1 - position**2) * speed - position

    return diffrax.diffeqsolve(
        diffrax.ODETerm(field),
        diffrax.Heun(),
        t0=0.0,
        t1=2.0,
        dt0=0.1,
        y0=(p[1], p[2]),
        stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-3),
        adjoint=adjoint,
        saveat=saveat,
        **options,
    )


def at_times(number: int) -> Any:
    return diffrax.SaveAt(ts=jnp.linspace(0.0, 2.0, number))


def weighed(solution: Any) -> Any:
    """A number that every saved row has a part in."""
    total = jnp.zeros(())
    for i, rows in enumerate(jax.tree.leaves(solution.ys)):
        weights = jnp.cos(jnp.arange(rows.size) + i)
        total += jnp.vdot(jnp.where(jnp.isfinite(rows), rows, 0.0), weights)
    return total


def between(solution: Any) -> Any:
    """The same of a solution that is known at every time."""
    return sum(jnp.sum(v) for v in jax.vmap(solution.evaluate)(jnp.linspace(0, 2, 5)))


SAVED: dict[str, tuple[Callable[[int], Any], Callable[[Any], Any]]] = {
    "at times": (at_times, weighed),
    "every step": (lambda _: diffrax.SaveAt(t0=True, steps=True), weighed),
    "all of it": (lambda _: diffrax.SaveAt(dense=True), between),
    "both": (
        lambda n: diffrax.SaveAt(
            subs=[
                diffrax.SubSaveAt(
                    ts=jnp.linspace(0.0, 2.0, n), fn=lambda t, y, a: y[0]
                ),
                diffrax.SubSaveAt(steps=2, t1=True),
            ]
        ),
        weighed,
    ),
}


def loss(name: str, number: int, adjoint: Any, steps: int) -> Callable[[Any], Any]:
    saveat, reduced = SAVED[name]
    return lambda p: reduced(solved(p, saveat(number), adjoint, max_steps=steps))


@pytest.mark.slow
@pytest.mark.parametrize("name", SAVED)
def test_a_snapshot_does_not_grow_with_what_is_saved(name: str) -> None:
    sizes = {
        retape.jax.explain(
            loss(name, number, diffrax.ForwardMode(), steps), P
        ).capsule_bytes
        for number, steps in ((20, 60), (60, 500))
    }
    (size,) = sizes
    assert size < 1000


@pytest.mark.slow
@pytest.mark.parametrize("number", [3, 20])
def test_saving_at_times_is_a_part_of_a_step(number: int) -> None:
    """The loop over the rows that fall into it splits no step, be it short or long."""
    saving = loss("at times", number, diffrax.ForwardMode(), 60)

    def ending(p: Any) -> Any:
        saveat = diffrax.SaveAt(t1=True)
        return weighed(solved(p, saveat, diffrax.ForwardMode(), max_steps=60))

    found, least = (retape.jax.explain(f, P) for f in (saving, ending))
    assert (found.blocks, found.loops) == (least.blocks, least.loops) == (3, 1)
    # Two more integers: how many rows there are, and where to look for the next time.
    assert found.capsule_bytes == least.capsule_bytes + 2 * 8


def trajectory(x: Any) -> Any:
    """A loop with buffers inside another, as Equinox makes them."""

    def inner(state: Any) -> Any:
        i, v, rows = state
        return i + 1, 0.7 * v + 0.1, rows.at[i].set(v * x)

    def outer(state: Any) -> Any:
        i, v, rows = state
        more = equinox.while_loop(
            lambda s: s[1] > 0.9, inner, state, buffers=lambda s: s[2], kind="lax"
        )
        i, v, rows = more
        return i + 1, 1.9 * jnp.sin(v), rows.at[i].set(v)

    start = (jnp.asarray(0), x, jnp.zeros(12))
    found = equinox.while_loop(
        lambda s: s[0] < 9, outer, start, buffers=lambda s: s[2], kind="lax"
    )
    return jnp.vdot(found[2], jnp.arange(1.0, 13.0)) + found[1]


@pytest.mark.slow
def test_buffers_of_equinox() -> None:
    layout = retape.jax.explain(trajectory, 0.4)
    assert layout.capsule_bytes < 12 * 8
    gradient = retape.jax.grad(trajectory, plan=PLAN)
    assert_close(jax.jit(gradient)(0.4), jax.jacfwd(trajectory)(0.4))

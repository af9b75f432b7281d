"""`retape.diffrax.RetapeAdjoint`, against diffrax's own adjoint and differences.

diffrax's own tests are run over it by `benchmarks/peers`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import pytest

import retape
import retape.diffrax
import retape.jax

PLAN = retape.fixed_space(snapshots=4)
OURS = retape.diffrax.RetapeAdjoint(PLAN)
POINT = np.asarray([0.7, 1.3, -0.4])
PID = dfx.PIDController(rtol=1e-3, atol=1e-3)


def pendulum(t: Any, y: Any, p: Any) -> Any:
    return jnp.stack([y[1], -p[0] * jnp.sin(y[0]) - 0.1 * y[1] * p[1] + p[2] * t])


def solve(p: Any, adjoint: Any, **changed: Any) -> Any:
    options: dict[str, Any] = dict(
        terms=dfx.ODETerm(pendulum),
        solver=dfx.Bosh3(),
        t0=0.0,
        t1=1.0,
        dt0=0.1,
        y0=jnp.stack([p[1], p[0]]),
        args=p,
        max_steps=64,
        stepsize_controller=PID,
        adjoint=adjoint,
    )
    return dfx.diffeqsolve(**(options | changed))


def loss(saved: Any) -> Any:
    leaves = [jnp.where(jnp.isfinite(v), v, 0.0) for v in jax.tree.leaves(saved)]
    return sum(jnp.vdot(jnp.sin(v).ravel(), 1.0 + jnp.arange(v.size)) for v in leaves)


def of_times(p: Any, adjoint: Any, **changed: Any) -> Any:
    """Saved in every way at once."""
    times = jnp.linspace(0.0, 1.0, 5)
    subs = [
        dfx.SubSaveAt(ts=times, fn=lambda t, y, p: y[0] ** 2 * p[2]),
        dfx.SubSaveAt(t0=True, t1=True),
        dfx.SubSaveAt(steps=True, fn=lambda t, y, p: y * t),
    ]
    return loss(solve(p, adjoint, saveat=dfx.SaveAt(subs=subs), **changed).ys)


def of_noise(p: Any, adjoint: Any) -> Any:
    """A stochastic equation on a Brownian tree."""
    tree = dfx.VirtualBrownianTree(0.0, 1.0, tol=0.1, shape=(), key=jax.random.key(0))
    noise = dfx.ControlTerm(lambda t, y, p: 0.3 * p[2] * jnp.cos(y), tree)
    terms = dfx.MultiTerm(dfx.ODETerm(pendulum), noise)
    changed = {"terms": terms, "stepsize_controller": dfx.ConstantStepSize()}
    return loss(solve(p, adjoint, solver=dfx.EulerHeun(), **changed).ys)


def of_event(p: Any, adjoint: Any) -> Any:
    """A fall that ends where the ground is, found by Newton's method."""
    event = dfx.Event(lambda t, y, args, **_: y[0], optx.Newton(1e-6, 1e-6))
    solution = solve(
        p,
        adjoint,
        terms=dfx.ODETerm(lambda t, y, p: jnp.stack([y[1], -9.0 * p[0]])),
        y0=jnp.stack([1.0 + p[1] ** 2, p[2]]),
        event=event,
        t1=10.0,
    )
    return loss((solution.ys, solution.ts))


def of_lanes(p: Any, adjoint: Any) -> Any:
    """Solves side by side that end at other times."""
    ends = jnp.asarray([0.3, 1.0])
    return loss(jax.vmap(lambda t1: solve(p, adjoint, t1=t1).ys)(ends))


@pytest.mark.slow
@pytest.mark.parametrize("fun", [of_times, of_noise, of_event, of_lanes])
def test_the_gradient_is_that_of_diffrax(fun: Any) -> None:
    theirs = dfx.RecursiveCheckpointAdjoint()
    got, want = (
        jax.jit(jax.grad(fun), static_argnums=1)(POINT, adjoint)
        for adjoint in (OURS, theirs)
    )
    np.testing.assert_allclose(got, want, rtol=1e-12)


@pytest.mark.slow
def test_what_its_own_adjoint_refuses() -> None:
    """No bound on the steps, forward mode, second derivatives; in bytes."""

    def fun(p: Any, adjoint: Any) -> Any:
        # An error estimate has no derivative in diffrax, so that with adaptive steps
        # differences of gradients are no second derivatives.
        fixed = dfx.ConstantStepSize()
        options = {"max_steps": None, "solver": dfx.Heun()}
        return loss(solve(p, adjoint, stepsize_controller=fixed, **options).ys)

    direction = np.asarray([1.0, -0.5, 0.2])
    ours = retape.diffrax.RetapeAdjoint(retape.within("20 kB"))

    def slope(p: Any) -> Any:
        return jax.jvp(lambda p: fun(p, ours), (p,), (direction,))[1]

    theirs = dfx.RecursiveCheckpointAdjoint()
    with pytest.raises(Exception, match="Cannot reverse-mode autodifferentiate"):
        jax.grad(fun)(POINT, theirs)
    slope_, curvature = jax.jit(jax.value_and_grad(slope))(POINT)
    gradient = jax.jit(jax.grad(fun), static_argnums=1)
    np.testing.assert_allclose(gradient(POINT, ours) @ direction, slope_, rtol=1e-12)
    step = 1e-5
    ahead, behind = (gradient(POINT + s * direction, ours) for s in (step, -step))
    np.testing.assert_allclose(curvature, (ahead - behind) / (2 * step), rtol=1e-7)


@pytest.mark.slow
def test_a_plan_acts_on_the_default_adjoint() -> None:
    """`retape.jax.grad` of a solve for which no adjoint was chosen."""

    def fun(p: Any) -> Any:
        return loss(solve(p, dfx.RecursiveCheckpointAdjoint()).ys)

    explained = retape.jax.explain(fun, POINT, plan=PLAN)
    assert (explained.loops, explained.snapshots) == (1, 4)
    np.testing.assert_allclose(
        jax.jit(retape.jax.grad(fun, plan=PLAN))(POINT),
        jax.jit(jax.grad(fun))(POINT),
        rtol=1e-12,
    )


@pytest.mark.slow
def test_memory_is_what_the_plan_says() -> None:
    """More snapshots, more bytes; and the budget is held by the compiled program."""

    def bytes_of(plan: Any) -> int:
        def fun(y0: Any) -> Any:
            adjoint = retape.diffrax.RetapeAdjoint(plan)
            fixed = dfx.ConstantStepSize()
            term = dfx.ODETerm(lambda t, y, _: jnp.sin(y))
            changed = dict(terms=term, y0=y0, args=None, stepsize_controller=fixed)
            changed |= dict(solver=dfx.Euler(), dt0=0.01, max_steps=None)
            return jnp.sum(solve(POINT, adjoint, **changed).ys)

        y0 = jax.ShapeDtypeStruct((1000,), np.float64)
        compiled = jax.jit(jax.grad(fun)).lower(y0).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    few, many = (bytes_of(retape.fixed_space(snapshots=n, stage=1)) for n in (4, 40))
    assert 35 * 8000 < many - few < 37 * 8000
    assert bytes_of(retape.within("300 kB")) <= 300_000


@pytest.mark.slow
@pytest.mark.parametrize("t1", [1.0, -1.0])
def test_the_solution_is_the_same_with_what_was_not_used(t1: float) -> None:
    """Unused rows of what is saved, forwards and backwards in time."""
    subs = [dfx.SubSaveAt(steps=True), dfx.SubSaveAt(ts=jnp.linspace(0.0, t1, 3))]
    saveat = dfx.SaveAt(subs=subs, dense=True)
    ours, theirs = (
        solve(POINT, adjoint, t1=t1, dt0=0.1 * t1, saveat=saveat)
        for adjoint in (OURS, dfx.RecursiveCheckpointAdjoint())
    )
    assert ours.stats["num_steps"] > 1
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_path_that_cannot_be_drawn_again_is_refused() -> None:
    path = dfx.UnsafeBrownianPath(shape=(), key=jax.random.key(0))
    noise = dfx.ControlTerm(lambda t, y, p: y, path)
    terms = dfx.MultiTerm(dfx.ODETerm(pendulum), noise)
    fixed = dfx.ConstantStepSize()
    with pytest.raises(retape.UnsupportedError, match="Use `diffrax.VirtualBrownianTr"):
        solve(POINT, OURS, terms=terms, solver=dfx.Euler(), stepsize_controller=fixed)


# What a solve saves that nobody marked ----------------------------------------------


def at_times(number: int) -> Any:
    return dfx.SaveAt(ts=jnp.linspace(0.0, 1.0, number))


SAVED: dict[str, Callable[[int], Any]] = {
    "at times": at_times,
    "every step": lambda _: dfx.SaveAt(t0=True, steps=True),
    "all of it": lambda _: dfx.SaveAt(dense=True),
    "both": lambda n: dfx.SaveAt(
        subs=[
            dfx.SubSaveAt(ts=jnp.linspace(0.0, 1.0, n), fn=lambda t, y, p: y[0]),
            dfx.SubSaveAt(steps=2, t1=True),
        ]
    ),
}


def told(saveat: Any, steps: int = 60) -> Any:
    def fun(p: Any) -> Any:
        changed = {"solver": dfx.Heun(), "max_steps": steps, "saveat": saveat}
        found = solve(p, dfx.ForwardMode(), **changed)
        if found.ys is None:
            return loss(jax.vmap(found.evaluate)(jnp.linspace(0.0, 1.0, 5)))
        return loss(found.ys)

    return retape.jax.explain(fun, POINT)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAVED)
def test_a_snapshot_does_not_grow_with_what_is_saved(name: str) -> None:
    (size,) = {
        told(SAVED[name](number), steps).capsule_bytes
        for number, steps in ((20, 60), (60, 500))
    }
    assert size < 1000


@pytest.mark.slow
@pytest.mark.parametrize("number", [3, 20])
def test_saving_at_times_is_a_part_of_a_step(number: int) -> None:
    """The loop over the rows that fall into it splits no step, be it short or long."""
    found, least = told(at_times(number)), told(dfx.SaveAt(t1=True))
    assert (found.blocks, found.loops) == (least.blocks, least.loops) == (3, 1)
    # Two more integers: how many rows there are, and where to look for the next time.
    assert found.capsule_bytes == least.capsule_bytes + 2 * 8

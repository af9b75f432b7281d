"""Every kind of diffrax solve: our adjoint's gradient beside that of diffrax's own.

One row for each solver, step size controller, `SaveAt`, event, Brownian path and
transformation, with the largest difference, relative to the largest entry. Where
diffrax refuses reverse mode (`max_steps=None`), the oracle is its forward mode.

    python -m benchmarks.solvers.agreement [NAME ...]
"""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from benchmarks.harness import Table, asked

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import diffrax as dfx
    import equinox as eqx
    import optimistix as optx

import retape
import retape.diffrax

PLAN = retape.fixed_space(snapshots=4)
POINT = np.asarray([0.7, 1.3, -0.4])
Problem = Callable[[Any, Any], Any]

ODE_SOLVERS = (
    "Euler Heun Midpoint Ralston Bosh3 Tsit5 Dopri5 Dopri8 LeapfrogMidpoint "
    "ReversibleHeun ImplicitEuler Kvaerno3 Kvaerno4 Kvaerno5"
).split()
IMEX_SOLVERS = "KenCarp3 KenCarp4 KenCarp5 Sil3".split()
SDE_SOLVERS = (
    "EulerHeun ItoMilstein StratonovichMilstein SRA1 ShARK SPaRK GeneralShARK SlowRK "
    "SEA"
).split()
PID = dfx.PIDController(rtol=1e-4, atol=1e-4)


def field(t: Any, y: Any, p: Any) -> Any:
    """A driven pendulum with friction."""
    angle, speed = y
    return jnp.stack([speed, -p[0] * jnp.sin(angle) - 0.1 * speed * p[1] + p[2] * t])


def total(saved: Any) -> Any:
    """A number that depends on everything that was saved, and not symmetrically."""
    leaves = [v for v in jax.tree.leaves(saved) if eqx.is_inexact_array(v)]
    kept = [jnp.where(jnp.isfinite(v), v, 0.0) for v in leaves]
    return sum(jnp.vdot(jnp.sin(v).ravel(), 1 + jnp.arange(v.size)) for v in kept)


def solve(p: Any, adjoint: Any, **changed: Any) -> Any:
    """The pendulum's solution."""
    options: dict[str, Any] = dict(
        terms=dfx.ODETerm(field),
        solver=dfx.Tsit5(),
        t0=0.0,
        t1=2.0,
        dt0=0.1,
        y0=jnp.stack([p[1], p[0]]),
        args=p,
        max_steps=256,
        adjoint=adjoint,
    )
    return dfx.diffeqsolve(**(options | changed))


def ode(p: Any, adjoint: Any, **changed: Any) -> Any:
    """A loss of everything that the solution has saved."""
    solution = solve(p, adjoint, **changed)
    return total((solution.ys, solution.ts))


def dense(p: Any, adjoint: Any) -> Any:
    """A loss of the interpolated solution."""
    saveat = dfx.SaveAt(dense=True)
    solution = solve(p, adjoint, saveat=saveat, stepsize_controller=PID)
    times = jnp.linspace(0.1, 1.9, 5)
    return total([jax.vmap(solution.evaluate)(times), solution.derivative(0.7)])


def imex(p: Any, adjoint: Any, solver: Any) -> Any:
    """A stiff and a loose term."""
    loose = dfx.ODETerm(lambda t, y, p: jnp.sin(y) * p[0])
    stiff = dfx.ODETerm(lambda t, y, p: -10.0 * p[1] * y + p[2])
    controller = dfx.PIDController(rtol=1e-3, atol=1e-3)
    if isinstance(solver, dfx.Sil3):
        controller = dfx.ConstantStepSize()
    return ode(
        p,
        adjoint,
        terms=dfx.MultiTerm(loose, stiff),
        solver=solver,
        stepsize_controller=controller,
        dt0=0.05,
    )


def symplectic(p: Any, adjoint: Any) -> Any:
    """Positions and speeds in turn."""
    force = dfx.ODETerm(lambda t, y, p: -p[0] * jnp.sin(y))
    drift = dfx.ODETerm(lambda t, v, p: p[1] * v)
    terms = (drift, force)
    start = (p[0], p[1])
    return ode(p, adjoint, terms=terms, solver=dfx.SemiImplicitEuler(), y0=start)


def brownian(shape: tuple[int, ...], seed: int, area: Any) -> Any:
    """Noise that is the same at each look."""
    key = jax.random.key(seed)
    return dfx.VirtualBrownianTree(0.0, 2.0, 0.01, shape, key, levy_area=area)


def sde(p: Any, adjoint: Any, solver: Any, **changed: Any) -> Any:
    """Noise from a Brownian tree: additive, of as many dimensions as the state."""
    additive = isinstance(solver, (dfx.SRA1, dfx.ShARK, dfx.SEA))
    path = brownian((2,) if additive else (), 0, dfx.SpaceTimeLevyArea)

    def noise(t: Any, y: Any, p: Any) -> Any:
        return p[2] * jnp.eye(2) if additive else 0.3 * p[2] * jnp.cos(y)

    term = dfx.ControlTerm(noise, path)
    terms = dfx.MultiTerm(dfx.ODETerm(field), term)
    return ode(p, adjoint, terms=terms, solver=solver, **({"dt0": 0.1} | changed))


def langevin(p: Any, adjoint: Any, solver: Any) -> Any:
    """Underdamped Langevin dynamics."""
    thrice = isinstance(solver, (dfx.ShOULD, dfx.QUICSORT))
    area = dfx.SpaceTimeTimeLevyArea if thrice else dfx.SpaceTimeLevyArea
    path = brownian((2,), 1, area)
    gamma, u = jnp.abs(p[0]) * jnp.ones(2), jnp.abs(p[1]) * jnp.ones(2)
    terms = dfx.MultiTerm(
        dfx.UnderdampedLangevinDriftTerm(gamma, u, lambda x, _: 2 * x * p[2] ** 2),
        dfx.UnderdampedLangevinDiffusionTerm(gamma, u, path),
    )
    start = (jnp.stack([p[1], p[0]]), jnp.stack([p[2], p[1]]))
    return ode(p, adjoint, terms=terms, solver=solver, y0=start, args=None)


def event(p: Any, adjoint: Any, root_finder: Any) -> Any:
    """A fall that ends where it meets the ground."""

    def falling(t: Any, y: Any, p: Any) -> Any:
        return jnp.stack([y[1], -9.0 * p[0]])

    def height(t: Any, y: Any, args: Any, **kwargs: Any) -> Any:
        return y[0] if root_finder is not None else y[0] < 0

    return ode(
        p,
        adjoint,
        terms=dfx.ODETerm(falling),
        y0=jnp.stack([1.0 + p[1] ** 2, p[2]]),
        event=dfx.Event(height, root_finder),
        stepsize_controller=PID,
        t1=10.0,
    )


def problems() -> Iterator[tuple[str, Problem]]:
    """All rows: a name and a function of parameters and an adjoint."""
    of = functools.partial
    for name in ODE_SOLVERS:
        kind = getattr(dfx, name)
        solver = kind()
        fixed = name in ("Euler", "LeapfrogMidpoint", "ImplicitEuler")
        if fixed and name == "ImplicitEuler":
            solver = kind(root_finder=optx.Newton(rtol=1e-8, atol=1e-8))
        if name.startswith("Kvaerno"):
            solver = kind(root_finder=dfx.VeryChord(rtol=1e-8, atol=1e-8))
        controller = dfx.ConstantStepSize() if fixed else PID
        yield f"ode-{name}", of(ode, solver=solver, stepsize_controller=controller)
    for name in IMEX_SOLVERS:
        kind = getattr(dfx, name)
        finder = {"root_finder": dfx.VeryChord(rtol=1e-8, atol=1e-8)}
        solver = kind(**finder) if name == "Sil3" else kind()
        yield f"imex-{name}", of(imex, solver=solver)
    yield "SemiImplicitEuler", symplectic
    for name in SDE_SOLVERS:
        yield f"sde-{name}", of(sde, solver=getattr(dfx, name)())
    for name in ("ALIGN", "ShOULD", "QUICSORT"):
        yield f"langevin-{name}", of(langevin, solver=getattr(dfx, name)(0.1))
    adaptive = dfx.PIDController(rtol=1e-2, atol=1e-2, dtmin=0.02)
    yield "sde-adaptive", of(sde, solver=dfx.SPaRK(), stepsize_controller=adaptive)
    times = jnp.linspace(0.0, 2.0, 9)
    yield "StepTo", of(ode, stepsize_controller=dfx.StepTo(times), dt0=None)
    clipped = dfx.ClipStepSizeController(PID, step_ts=times, jump_ts=jnp.asarray([1.1]))
    yield "ClipStepSizeController", of(ode, stepsize_controller=clipped)
    save = of(ode, stepsize_controller=PID)
    yield "saveat-ts", of(save, saveat=dfx.SaveAt(ts=times))
    yield "saveat-steps", of(save, saveat=dfx.SaveAt(steps=True))
    yield "saveat-ends", of(save, saveat=dfx.SaveAt(t0=True, t1=True))
    yield "saveat-dense", dense
    only = dfx.SaveAt(ts=times, fn=lambda t, y, p: y[0] ** 2 * p[0])
    yield "saveat-fn", of(save, saveat=only)
    subs = [
        dfx.SubSaveAt(ts=times, fn=lambda t, y, p: y[1]),
        dfx.SubSaveAt(t0=True, t1=True),
        dfx.SubSaveAt(steps=True, fn=lambda t, y, p: y * t),
    ]
    yield "saveat-subs", of(save, saveat=dfx.SaveAt(subs=subs))
    yield "event-by-condition", of(event, root_finder=None)
    yield "event-by-root", of(event, root_finder=optx.Newton(1e-6, 1e-6))
    yield "max-steps-none", of(save, max_steps=None)

    def lanes(p: Any, adjoint: Any) -> Any:
        ends = jnp.asarray([0.5, 1.0, 2.0])
        one = jax.vmap(lambda t1: save(p, adjoint, t1=t1, saveat=dfx.SaveAt(t1=True)))
        return jnp.sum(one(ends))

    yield "vmap-ends-differ", lanes


def gradients(fun: Problem, name: str) -> tuple[Any, Any]:
    """Our gradient, and the oracle's."""
    ours = jax.grad(lambda p: fun(p, retape.diffrax.RetapeAdjoint(plan=PLAN)))
    if name == "max-steps-none":
        theirs = jax.jacfwd(lambda p: fun(p, dfx.ForwardMode()))
    else:
        theirs = jax.grad(lambda p: fun(p, dfx.RecursiveCheckpointAdjoint()))
    return jax.jit(ours)(POINT), jax.jit(theirs)(POINT)


def main() -> None:
    """Print the table."""
    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore")
    made = dict(problems())
    given = asked(__doc__, made, {"names": ["ode-Tsit5", "event-by-root"]})
    table = Table("problem", "difference", "seconds")
    for name in given.names:
        began = time.perf_counter()
        try:
            ours, theirs = gradients(made[name], name)
        except Exception as error:  # shown in the table; the next row is run
            table.row(name, f"{type(error).__name__}: {str(error)[:200]!r}", None)
            continue
        scale = np.max(np.abs(theirs))
        far: object = f"{np.max(np.abs(ours - theirs)) / scale:.1e}"
        far = far if scale > 1e-6 else f"gradient {scale}"
        table.row(name, far, time.perf_counter() - began)


if __name__ == "__main__":
    main()

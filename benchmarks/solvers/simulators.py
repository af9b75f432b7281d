"""One table over simulators: what plain reverse mode says, and what a plan takes.

    pip install -r benchmarks/requirements.txt
    python benchmarks/solvers/simulators.py [NAMES]

Each program is written once, with JAX's or the package's own loop. "plain" is the
gradient by `jax.grad`: its temporaries' bytes, or the error. "ours" is the gradient
under a plan: bytes, and its time in units of a forward run, the least of three taken in
turn. "lines" is what a user changes. Gradients are compared with plain ones where there
are any, otherwise with forward mode along one direction; in single precision.

Packages that are not installed are left out by name.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import retape
import retape.jax

Function = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Program:
    """A row.

    Attributes:
        name: Of the package, and the program.
        fun: From an array to a number.
        point: The array.
        lines: What a user writes.
        gradient: Ours, if it is not `retape.jax.grad(fun, plan=plan)`.
        plan: The plan.
        forward: The same program, if `fun` has no forward mode.
    """

    name: str
    fun: Function
    point: Any
    lines: int = 1
    gradient: Function | None = None
    plan: Any = retape.fixed_space(snapshots=10)
    forward: Function | None = None


# Programs -------------------------------------------------------------------------


def diffrax() -> Program:
    """A reaction on a grid, until its time is over; no bound on the steps."""
    import diffrax as dfx

    import retape.diffrax

    def solve(y0: Any, adjoint: Any) -> Any:
        field = lambda t, y, args: 9 * (jnp.roll(y, 1) + jnp.roll(y, -1) - 2 * y)  # noqa: E731
        solution = dfx.diffeqsolve(
            dfx.ODETerm(lambda t, y, args: field(t, y, args) + jnp.sin(3 * y)),
            dfx.Tsit5(),
            0.0,
            2.0,
            0.01,
            y0,
            stepsize_controller=dfx.PIDController(rtol=1e-4, atol=1e-6),
            max_steps=None,
            adjoint=adjoint,
        )
        assert solution.ys is not None
        return jnp.sum(solution.ys**2)

    ours = retape.diffrax.RetapeAdjoint(retape.fixed_space(snapshots=10))
    usual = dfx.RecursiveCheckpointAdjoint()
    return Program(
        "diffrax, max_steps=None",
        lambda y: solve(y, usual),
        jnp.sin(jnp.linspace(0.0, 9.0, 1000)),
        gradient=jax.grad(lambda y: solve(y, ours)),
        forward=lambda y: solve(y, dfx.ForwardMode()),
    )


def optimistix() -> Program:
    """Gradient descent stopped early, by its start."""
    import optimistix as optx

    import retape.optimistix

    target = jnp.linspace(0.0, 1.0, 1000)

    def solve(y0: Any, adjoint: Any) -> Any:
        found = optx.minimise(
            lambda y, args: jnp.sum((y - target) ** 2 * (1 + target) + 0.1 * y**4),
            optx.GradientDescent(0.01, 1e-9, 1e-9),
            y0,
            max_steps=300,
            throw=False,
            adjoint=adjoint,
        )
        return jnp.sum(found.value**2)

    ours = retape.optimistix.RetapeAdjoint(retape.fixed_space(snapshots=10))
    usual = optx.RecursiveCheckpointAdjoint()
    return Program(
        "Optimistix, unrolled",
        lambda y: solve(y, usual),
        jnp.zeros(1000),
        gradient=jax.grad(lambda y: solve(y, ours)),
    )


BALL = """
<mujoco>
  <option timestep="0.005" iterations="6" ls_iterations="6" integrator="Euler"/>
  <worldbody>
    <geom type="plane" size="5 5 .1"/>
    <body pos="0 0 .3">
      <joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/>
      <joint type="hinge" axis="0 1 0"/>
      <geom type="capsule" size=".05 .1" mass="1"/>
    </body>
  </worldbody>
</mujoco>
"""


def _mujoco(masked: bool) -> Program:
    import mujoco
    from mujoco import mjx
    from mujoco.mjx._src import solver

    models: Any = mujoco
    model = mjx.put_model(models.MjModel.from_xml_string(BALL))
    data = mjx.make_data(model)

    def fall(v: Any) -> Any:
        step = lambda i, d: mjx.step(model, d)  # noqa: E731
        after = jax.lax.fori_loop(0, 200, step, data.replace(qvel=v))
        return jnp.sum(after.qpos**2)

    def fall_masked(v: Any) -> Any:
        """The same with the solver's loop as a scan of masked iterations."""
        usual = solver.jax.lax.while_loop
        solver.jax.lax.while_loop = lambda c, b, x: solver._while_loop_scan(
            c, b, x, model.opt.iterations
        )
        try:
            return fall(v)
        finally:
            solver.jax.lax.while_loop = usual

    point = jnp.asarray([0.3, -0.7, 0.5])
    if masked:
        return Program("MJX, masked scan", fall_masked, point)
    return Program("MJX, contacts, 6 iterations", fall, point)


def mjx() -> Program:
    """A capsule that falls on a plane and slides, 200 steps."""
    return _mujoco(False)


def mjx_masked() -> Program:
    """The same, with MJX's loop of unknown length replaced by a masked scan."""
    return _mujoco(True)


def jax_cfd() -> Program:
    """Vorticity on 64 x 64, 1000 steps of Crank-Nicolson and Runge-Kutta."""
    import jax_cfd.base as cfd
    import jax_cfd.spectral as spectral

    grid = cfd.grids.Grid((64, 64), domain=((0, 2 * np.pi), (0, 2 * np.pi)))
    equation = spectral.equations.NavierStokes2D(1e-3, grid, smooth=True)
    step = spectral.time_stepping.crank_nicolson_rk4(equation, 1e-3)

    def run(w: Any) -> Any:
        body = lambda h, _: (step(h), None)  # noqa: E731
        last, _ = jax.lax.scan(body, jnp.fft.rfftn(w), None, length=1000)
        return jnp.sum(jnp.fft.irfftn(last) ** 2)

    x = jnp.linspace(0, 2 * np.pi, 64, endpoint=False)
    return Program("jax-cfd, 1000 steps", run, jnp.sin(x)[:, None] * jnp.cos(2 * x))


def brax() -> Program:
    """A pendulum on a cart, 500 steps, by a constant force."""
    from brax import envs

    env = envs.get_environment("inverted_pendulum", backend="spring")
    state = jax.jit(env.reset)(jax.random.PRNGKey(0))

    def run(force: Any) -> Any:
        body = lambda s, _: (env.step(s, force * jnp.ones(env.action_size)), None)  # noqa: E731
        last, _ = jax.lax.scan(body, state, None, length=500)
        return jnp.sum(last.obs**2)

    return Program("brax (spring), 500 steps", run, jnp.asarray(0.01))


def jaxley() -> Program:
    """A neuron of six compartments, Hodgkin-Huxley, 4000 steps, by a conductance."""
    import jaxley as jx
    from jaxley.channels import HH

    with _quiet():
        parts = [jx.Branch(jx.Compartment(), ncomp=2) for _ in range(3)]
        cell = jx.Cell(parts, parents=[-1, 0, 0])
        cell.insert(HH())
        cell.branch(0).comp(0).record()
        current = jx.step_current(1.0, 1.0, 0.1, 0.025, 100.0)
        cell.branch(0).comp(0).stimulate(current)
        cell.make_trainable("HH_gNa")
    (name,) = cell.get_parameters()[0]

    def run(g: Any) -> Any:
        return jnp.mean(jx.integrate(cell, params=[{name: g}]) ** 2)

    return Program("jaxley, 4000 steps", run, cell.get_parameters()[0][name])


def numpyro() -> Program:
    """A log-density with a solve in it: the rate of a decay, from observations."""
    import numpyro as npy
    from numpyro import distributions as dist
    from numpyro.infer.util import log_density

    seen = jnp.exp(-0.7 * jnp.linspace(0.1, 1.0, 10))

    def model(seen: Any) -> None:
        rate = npy.sample("rate", dist.LogNormal(0.0, 1.0))

        def step(state: Any) -> Any:
            y, k = state
            return y - 1e-4 * rate * y, k + 1

        def until(y: Any, end: Any) -> Any:
            going = lambda s: s[1] < end  # noqa: E731
            return jax.lax.while_loop(going, step, y)

        state, found = (jnp.ones(()), jnp.asarray(0)), []
        for end in range(1000, 10_001, 1000):
            state = until(state, end)
            found.append(state[0])
        npy.sample("y", dist.Normal(jnp.stack(found), 0.1), obs=seen)

    def density(rate: Any) -> Any:
        return log_density(model, (seen,), {}, {"rate": rate})[0]

    return Program("NumPyro, a solve inside", density, jnp.asarray(0.5))


def blackjax() -> Program:
    """Hamiltonian trajectories, 1000 leapfrog steps, by their step size."""
    from blackjax.mcmc import integrators

    def energy(x: Any) -> Any:
        return -jnp.sum(x**2) / 2 - jnp.sum(jnp.cos(x))

    one = integrators.velocity_verlet(energy, lambda p, **_: jnp.sum(p**2) / 2)
    start = jnp.linspace(-1.0, 1.0, 500)

    def run(size: Any) -> Any:
        begun = integrators.IntegratorState(
            start, jnp.cos(start), energy(start), jax.grad(energy)(start)
        )
        body = lambda s, _: (one(s, size), None)  # noqa: E731
        last, _ = jax.lax.scan(body, begun, None, length=1000)
        return jnp.sum(last.position**2)

    return Program("BlackJAX, 1000 leapfrog steps", run, jnp.asarray(0.01))


def optax() -> Program:
    """1,000 steps of Adam, by the logarithm of the learning rate."""
    import optax as ox

    inputs = jax.random.normal(jax.random.key(0), (256, 32))
    targets = jnp.sin(inputs @ jnp.linspace(-1.0, 1.0, 32))

    def fit(log_rate: Any) -> Any:
        optimizer = ox.adam(jnp.exp(log_rate))
        loss = lambda w: jnp.mean((jnp.tanh(inputs @ w) - targets) ** 2)  # noqa: E731

        def step(carry: Any, _: Any) -> Any:
            w, state = carry
            updates, state = optimizer.update(jax.grad(loss)(w), state)
            return (ox.apply_updates(w, updates), state), None

        w = jnp.zeros(32)
        (w, _), _ = jax.lax.scan(step, (w, optimizer.init(w)), length=1000)
        return loss(w)

    plan = retape.fixed_space(snapshots=20, stage=5)
    return Program("Optax, 1000 steps of Adam", fit, jnp.asarray(-8.0), plan=plan)


PROGRAMS = {
    made.__name__: made
    for made in (
        diffrax,
        optimistix,
        mjx,
        mjx_masked,
        jax_cfd,
        brax,
        jaxley,
        numpyro,
        blackjax,
        optax,
    )
}

# Measuring ------------------------------------------------------------------------


def _quiet() -> Any:
    import contextlib
    import io

    return contextlib.redirect_stdout(io.StringIO())


def compiled(fun: Function, point: Any) -> tuple[Any, int]:
    """A program, and its temporaries' bytes."""
    made = jax.jit(fun).lower(point).compile()
    return made, made.memory_analysis().temp_size_in_bytes


def least_seconds(programs: list[Any], point: Any, times: int = 3) -> list[float]:
    """The least time of each, taken in turn."""
    best = [float("inf")] * len(programs)
    for _ in range(times):
        for i, program in enumerate(programs):
            began = time.perf_counter()
            jax.block_until_ready(program(point))
            best[i] = min(best[i], time.perf_counter() - began)
    return best


def said(error: Exception) -> str:
    """What plain reverse mode says, in few words."""
    return f"refuses: {' '.join(str(error).split())[:58]}"


def measure(program: Program) -> str:
    """A row of the table."""
    point = program.point
    gradient = program.gradient or retape.jax.grad(program.fun, plan=program.plan)
    forward, _ = compiled(program.fun, point)
    ours, size = compiled(gradient, point)
    found = np.asarray(ours(point), np.float64)
    try:
        plain, plain_size = compiled(jax.grad(program.fun), point)
    except Exception as error:  # that is the result
        text, times = said(error), least_seconds([forward, ours], point)
        # Forward mode: along one direction.
        along = jnp.cos(jnp.arange(point.size, dtype=point.dtype)).reshape(point.shape)
        slope = slope_along(program, along)
        far = abs(np.vdot(found, along) - slope) / abs(slope)
        mine = f"{times[1] / times[0]:.1f}"
    else:
        text = f"{plain_size / 1e6:.2f} MB"
        times = least_seconds([forward, ours, plain], point)
        want = np.asarray(plain(point), np.float64)
        far = np.linalg.norm(found - want) / np.linalg.norm(want)
        text += f", {times[2] / times[0]:.1f}"
        mine = f"{times[1] / times[0]:.1f}"
    row = (program.name, text, f"{size / 1e6:.3f} MB", mine, program.lines)
    return "| " + " | ".join(map(str, row)) + f" | {far:.0e} |"


def slope_along(program: Program, along: Any) -> float:
    """A derivative in forward mode."""
    fun = program.forward or program.fun
    slope = jax.jit(lambda x: jax.jvp(fun, (x,), (along,))[1])
    return float(slope(program.point))


def main(names: list[str]) -> None:
    """Print the table, in Markdown."""
    warnings.simplefilter("ignore")
    print("| program | plain: bytes, time | ours: bytes | time | lines | difference |")
    print("|---|---|---|---|---|---|")
    for name in names or list(PROGRAMS):
        try:
            with _quiet():
                program = PROGRAMS[name]()
        except ImportError as error:
            print(f"| {name} | not installed: {error.name} | | | | |")
            continue
        print(measure(program), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

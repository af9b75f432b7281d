"""Programs of solvers, samplers and optimisers, for the table over simulators."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from benchmarks.solvers.program import Program, over

import retape


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
        return jnp.sum(over(1000, lambda s: one(s, size), begun).position ** 2)

    return Program("BlackJAX, 1000 leapfrog steps", run, jnp.asarray(0.01))


def optax() -> Program:
    """1,000 steps of Adam, by the logarithm of the learning rate."""
    import optax as ox

    inputs = jax.random.normal(jax.random.key(0), (256, 32))
    targets = jnp.sin(inputs @ jnp.linspace(-1.0, 1.0, 32))

    def fit(log_rate: Any) -> Any:
        optimizer = ox.adam(jnp.exp(log_rate))
        loss = lambda w: jnp.mean((jnp.tanh(inputs @ w) - targets) ** 2)  # noqa: E731

        def step(carry: Any) -> Any:
            w, state = carry
            updates, state = optimizer.update(jax.grad(loss)(w), state)
            return ox.apply_updates(w, updates), state

        w = jnp.zeros(32)
        return loss(over(1000, step, (w, optimizer.init(w)))[0])

    plan = retape.fixed_space(snapshots=20, stage=5)
    return Program("Optax, 1000 steps of Adam", fit, jnp.asarray(-8.0), plan=plan)

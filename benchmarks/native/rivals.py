"""The functions elsewhere: compiled by Numba, and in JAX.

JAX refuses the gradient of a loop whose length only running tells, so it has those
whose number of steps is known, with operations on whole arrays, as one would.
"""

import types
from collections.abc import Callable
from typing import Any

from benchmarks.native import functions as ten

Call = Callable[..., Any]


def numba_version(f: Call) -> Call | None:
    """The function and those that it calls, compiled by Numba, if that is installed."""
    try:
        import numba  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    names = dict(vars(ten))
    for name in ("gravity", "simpson"):
        names[name] = numba.njit(getattr(ten, name))
    copy = types.FunctionType(f.__code__, names, f.__name__, f.__defaults__)
    return numba.njit(copy)


# In JAX: the step and the number that a run comes to, from arguments but the last one,
# which is the number of steps.


def scanned(step: Call, state: Any, steps: int) -> Any:
    import jax

    over = jax.numpy.arange(steps)
    return jax.lax.scan(lambda s, t: (step(s, t), None), state, over)[0]


def n_body(p: Any, v: Any, mass: Any, steps: int) -> Any:
    import jax.numpy as jnp

    others = 1.0 - jnp.eye(len(mass))

    def gravity(p: Any) -> Any:
        d = p[None, :, :] - p[:, None, :]
        r2 = (d * d).sum(-1) + 0.01
        pull = mass[None, :] / (r2 * jnp.sqrt(r2)) * others
        return (pull[:, :, None] * d).sum(1)

    def step(state: Any, _: Any) -> Any:
        p = state[0] + 0.001 * state[1]
        return p, state[1] + 0.001 * gravity(p)

    p, _ = scanned(step, (p, v + 0.5 * 0.001 * gravity(p)), steps)
    return p[0, 0] ** 2 + p[0, 1] ** 2


def pendulum(angle: Any, length: Any, steps: int) -> Any:
    import jax.numpy as jnp

    def step(state: Any, _: Any) -> Any:
        a, s = state
        s = s - 0.001 * (9.81 / length * jnp.sin(a) + 0.1 * s)
        return a + 0.001 * s, s

    return scanned(step, (angle, 0.0 * angle), steps)[0]


def rnn_cell(w: Any, u: Any, h: Any, steps: int) -> Any:
    import jax.numpy as jnp

    return scanned(lambda h, t: jnp.tanh(w @ h + jnp.sin(0.1 * t) * u), h, steps).sum()


IN_JAX = {ten.n_body: n_body, ten.pendulum: pendulum, ten.rnn_cell: rnn_cell}


def jax_gradient(f: Call, args: tuple[Any, ...]) -> tuple[Call, int] | None:
    """The gradient in JAX, jitted, and the bytes that it takes, if JAX can."""
    import jax

    jax.config.update("jax_enable_x64", True)
    if f not in IN_JAX:
        return None
    steps, inputs = args[-1], args[:-1]
    gradient = jax.jit(jax.grad(lambda *x: IN_JAX[f](*x, steps), (0, 1)))
    given = [jax.numpy.asarray(each, dtype="float64") for each in inputs]
    compiled = gradient.lower(*given).compile()
    took: Any = compiled.memory_analysis()
    return (lambda *_: jax.block_until_ready(compiled(*given))), took.temp_size_in_bytes

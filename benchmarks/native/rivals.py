"""The ten functions elsewhere: compiled by Numba, in plain C, and in JAX.

JAX has the five whose number of steps is known beforehand and that assign no items: it
refuses the gradient of a loop whose length only running tells.
"""

import ctypes
import subprocess
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.native import functions as ten

SOURCE = Path(__file__).with_name("ten.c")
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


class InC:
    """The ten functions of `ten.c`, compiled with `-O2`."""

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            made = f"{folder}/ten.so"
            words = "gcc -O2 -shared -fPIC -o".split()
            subprocess.run([*words, made, str(SOURCE), "-lm"], check=True)
            self.library = ctypes.CDLL(made)

    def version(self, f: Call) -> Call:
        """A function that takes what the one in Python takes."""
        made = getattr(self.library, f.__name__)
        made.restype = ctypes.c_double
        return lambda *args: made(*_in_c(f, args))


def _in_c(f: Call, args: tuple[Any, ...]) -> list[Any]:
    found: list[Any] = []
    for arg in args:
        if isinstance(arg, np.ndarray):
            found.append(np.ascontiguousarray(arg).ctypes.data_as(ctypes.c_void_p))
        else:
            found.append(
                ctypes.c_long(arg) if isinstance(arg, int) else ctypes.c_double(arg)
            )
    if f is ten.n_body or f is ten.rnn_cell:
        found.insert(3, ctypes.c_int(len(args[2])))
    elif f is ten.soft_alignment or f is ten.adaptive_grid:
        found.insert(2 if f is ten.soft_alignment else 1, ctypes.c_long(len(args[0])))
    return found


def jax_gradient(f: Call, args: tuple[Any, ...]) -> tuple[Call, int] | None:
    """The gradient in JAX, jitted, and the bytes that it takes, if JAX can."""
    import jax

    jax.config.update("jax_enable_x64", True)
    made = _IN_JAX.get(f)
    if made is None:
        return None
    steps, inputs = args[-1], args[:-1]
    gradient = jax.jit(
        jax.grad(lambda *x: made(*x, steps), tuple(range(min(2, len(inputs)))))
    )
    given = [jax.numpy.asarray(each, dtype="float64") for each in inputs]
    compiled = gradient.lower(*given).compile()
    took: Any = compiled.memory_analysis()
    return (lambda *_: jax.block_until_ready(compiled(*given))), took.temp_size_in_bytes


def _scanned(step: Call, state: Any, steps: int) -> Any:
    import jax

    over = jax.numpy.arange(steps)
    return jax.lax.scan(lambda s, t: (step(s, t), None), state, over)[0]


def _n_body(position: Any, velocity: Any, mass: Any, steps: int) -> Any:
    import jax.numpy as jnp

    def gravity(p: Any) -> Any:
        d = p[None, :, :] - p[:, None, :]
        r2 = (d * d).sum(-1) + 0.01
        pull = mass[None, :] / (r2 * jnp.sqrt(r2)) * (1.0 - jnp.eye(len(mass)))
        return (pull[:, :, None] * d).sum(1)

    def step(state: Any, _: Any) -> Any:
        p, v = state
        p = p + 0.001 * v
        return p, v + 0.001 * gravity(p)

    start = position, velocity + 0.5 * 0.001 * gravity(position)
    p, _ = _scanned(step, start, steps)
    return p[0, 0] ** 2 + p[0, 1] ** 2


def _pendulum(angle: Any, length: Any, steps: int) -> Any:
    import jax.numpy as jnp

    def step(state: Any, _: Any) -> Any:
        a, s = state
        s = s - 0.001 * (9.81 / length * jnp.sin(a) + 0.1 * s)
        return a + 0.001 * s, s

    return _scanned(step, (angle, 0.0 * angle), steps)[0]


def _logistic_map(x: Any, r: Any, steps: int) -> Any:
    return _scanned(lambda s, _: r * s * (1.0 - s), x, steps)


def _ray(height: Any, curvature: Any, lenses: int) -> Any:
    import jax.numpy as jnp

    def step(state: Any, i: Any) -> Any:
        h, slope = state
        even = i % 2 == 0
        glass = jnp.where(even, 1.5, 1.0 / 1.5)
        normal = jnp.arcsin(jnp.where(even, curvature, -curvature) * h)
        slope = jnp.arcsin(jnp.sin(slope + normal) / glass) - normal
        return h + 0.05 * jnp.tan(slope), slope

    return _scanned(step, (height, 0.0 * height), lenses)[0]


def _rnn_cell(w: Any, u: Any, h: Any, steps: int) -> Any:
    import jax.numpy as jnp

    return _scanned(lambda h, t: jnp.tanh(w @ h + jnp.sin(0.1 * t) * u), h, steps).sum()


_IN_JAX: dict[Call, Call] = {
    ten.n_body: _n_body,
    ten.pendulum: _pendulum,
    ten.logistic_map: _logistic_map,
    ten.ray_through_lenses: _ray,
    ten.rnn_cell: _rnn_cell,
}

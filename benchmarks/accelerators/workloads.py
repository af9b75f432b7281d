"""The programs of the accelerator benchmark, in JAX's form and in their rivals'.

A workload's `program(loop)` is a function of one array, whose loop is made by `loop`:

    loop(step, state, n) -> state      n steps; or, with `n=None`, until `more(state)`

So the same step runs under `lax.scan`, under scans nested by hand, under Equinox's
checkpointed loop and under Retape, which is given JAX's own loop as it is.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from math import isqrt
from typing import Any

import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Program = Callable[[Any], Any]
Loop = Callable[[Callable[[Any], Any], Any, int], Any]


@dataclass(frozen=True, slots=True)
class Workload:
    """A program for any loop, and the point at which it is differentiated.

    Attributes:
        name: For tables.
        program: From a loop to a function of one array.
        point: The array.
        steps: Steps of its loop, where they are known.
    """

    name: str
    program: Callable[[Loop], Program]
    point: Any
    steps: int | None


def peak_bytes() -> int | None:
    """The most that the device ever held; `None` where it does not count."""
    return (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")


def scanned(step: Callable[[Any], Any], state: Any, n: int) -> Any:
    """JAX's own loop."""
    return lax.scan(lambda c, _: (step(c), None), state, None, length=n)[0]


def unknown(step: Callable[[Any], Any], state: Any, n: int) -> Any:
    """JAX's own, with a length that only the run tells."""
    last = n + jnp.any(jnp.isnan(jax.tree.leaves(state)[-1]))
    return lax.fori_loop(0, last, lambda _, c: step(c), state)


def by_hand(step: Callable[[Any], Any], state: Any, n: int) -> Any:
    """Scans nested by hand, two levels, and what is left over."""
    inner = max(1, isqrt(n))
    body = jax.checkpoint(step, prevent_cse=False)
    run = lambda c: scanned(body, c, inner)  # noqa: E731
    state = scanned(jax.checkpoint(run, prevent_cse=False), state, n // inner)
    return scanned(body, state, n % inner)


def equinox(checkpoints: int) -> Loop:
    """Equinox's checkpointed loop."""

    def loop(step: Callable[[Any], Any], state: Any, n: int) -> Any:
        return eqxi.while_loop(
            lambda s: s[0] < n,
            lambda s: (s[0] + 1, step(s[1])),
            (jnp.asarray(0), state),
            max_steps=n,
            kind="checkpointed",
            checkpoints=min(checkpoints, n),
        )[1]

    return loop


# Workloads ------------------------------------------------------------------------


def bptt(small: bool, sizes: tuple[int, int] | None = None) -> Workload:
    """Cheap steps over a vector: rotations by an angle that depends on the state."""
    n, size = sizes or ((200, 100) if small else (10_000, 1_000))

    def step(x: Any) -> Any:
        angle = 0.01 * jnp.sqrt(jnp.sum(x * x))
        c, s = jnp.cos(angle), jnp.sin(angle)
        a, b = x[0::2], x[1::2]
        return jnp.roll(jnp.stack([c * a - s * b, s * a + c * b], 1).reshape(-1), 1)

    def program(loop: Loop) -> Program:
        return lambda x: jnp.sum(loop(step, x, n) ** 2 * jnp.arange(size)) / size

    return Workload("BPTT", program, jnp.linspace(0.1, 1, size), n)


def paper(small: bool, sizes: tuple[int, int, int] | None = None) -> Workload:
    """Fig. 8: two nested loops, the inner one's length depends on the outer's index."""
    size, outer, most = sizes or ((100, 12, 8) if small else (1000, 60, 60))

    def program(loop: Loop) -> Program:
        def turn(state: Any) -> Any:
            i, x = state
            inner = lambda s: (s[0] + 1, 0.9 * jnp.cos(s[1]))  # noqa: E731
            going = lambda s: s[0] < 1 + (i * 7) % most  # noqa: E731
            if loop is scanned:
                x = lax.while_loop(going, inner, (0, x))[1]
            else:  # rivals need a bound, and masked steps
                held = lambda s: jax.tree.map(  # noqa: E731
                    lambda a, b: jnp.where(going(s), a, b), inner(s), s
                )
                x = loop(held, (jnp.asarray(0), x), most)[1]
            return i + 1, x + 1

        return lambda x: jnp.sum(loop(turn, (jnp.asarray(0), x), outer)[1] ** 2)

    return Workload("Fig. 8, nested", program, jnp.linspace(0.1, 1, size), outer)


def transformer(small: bool, sizes: tuple[int, int, int] | None = None) -> Workload:
    """Layers of a transformer with weights of their own; the gradient by the input."""
    layers, tokens, width = sizes or ((4, 8, 16) if small else (48, 512, 512))
    draw = np.random.default_rng(0)

    def made(*shape: int) -> Any:
        scale = np.sqrt(shape[-2])
        return jnp.asarray(draw.normal(size=(layers, *shape)) / scale, np.float32)

    weights = [made(width, 3 * width), made(width, 4 * width), made(4 * width, width)]

    def step(state: Any) -> Any:
        i, x = state
        qkv, up, down = (
            lax.dynamic_index_in_dim(w, i, keepdims=False) for w in weights
        )
        q, k, v = jnp.split(_norm(x) @ qkv, 3, -1)
        scores = q @ k.T / np.float32(np.sqrt(width))
        scores = jnp.where(jnp.tri(tokens, dtype=bool), scores, np.float32(-1e9))
        x = x + jax.nn.softmax(scores) @ v
        return i + 1, x + jax.nn.gelu(_norm(x) @ up) @ down

    def program(loop: Loop) -> Program:
        first = jnp.asarray(0)
        return lambda x: jnp.sum(loop(step, (first, x), layers)[1] ** 2)

    point = jnp.asarray(draw.normal(size=(tokens, width)), np.float32)
    return Workload(f"transformer, {layers} layers", program, point, layers)


def _norm(x: Any) -> Any:
    x = x - jnp.mean(x, -1, keepdims=True)
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + np.float32(1e-6))


def navier_stokes(small: bool, sizes: tuple[int, int] | None = None) -> Workload:
    """Vorticity on a periodic square, pseudo-spectral, Heun's method."""
    size, n = sizes or ((16, 10) if small else (256, 1000))
    k = jnp.fft.fftfreq(size, 1 / size)
    kx, ky = k[:, None], k[None, : size // 2 + 1]
    square = kx**2 + ky**2
    inverse = jnp.where(square > 0, 1 / jnp.where(square > 0, square, 1), 0)
    keep = (jnp.abs(kx) < size / 3) & (jnp.abs(ky) < size / 3)

    def rate(w: Any) -> Any:
        h = jnp.fft.rfft2(w)
        u, v = (
            jnp.fft.irfft2(1j * ky * inverse * h),
            jnp.fft.irfft2(-1j * kx * inverse * h),
        )
        moved = u * jnp.fft.irfft2(1j * kx * h) + v * jnp.fft.irfft2(1j * ky * h)
        return jnp.fft.irfft2(-jnp.fft.rfft2(moved) * keep - 1e-3 * square * h)

    def step(w: Any) -> Any:
        first = rate(w)
        return w + 0.5e-3 * (first + rate(w + 1e-3 * first))

    def program(loop: Loop) -> Program:
        return lambda w: jnp.sum(loop(step, w, n) ** 2)

    grid = jnp.linspace(0, 2 * np.pi, size, endpoint=False)
    point = jnp.sin(grid)[:, None] * jnp.cos(2 * grid)[None, :]
    return Workload(f"Navier-Stokes, {size} x {size}", program, point, n)


def adaptive(small: bool, end: float | None = None) -> Workload:
    """Coupled Van der Pol oscillators, solved by diffrax until the end is reached.

    Args:
        small: Whether there are five of them, in place of 500.
        end: The time at the end.
    """
    import diffrax

    count, usual = (5, 2.0) if small else (500, 100.0)
    end = usual if end is None else end

    def field(t: Any, y: Any, args: Any) -> Any:
        del t, args
        x, v = y
        pull = 0.1 * (jnp.roll(x, 1) - 2 * x + jnp.roll(x, -1))
        return v, (1 - x**2) * v - x + pull

    def program(loop: Loop) -> Program:
        kept: Any = diffrax.ForwardMode()
        if loop is not scanned:
            kept = diffrax.RecursiveCheckpointAdjoint(checkpoints=16)

        def run(x: Any) -> Any:
            solution = diffrax.diffeqsolve(
                diffrax.ODETerm(field),
                diffrax.Tsit5(),
                t0=0.0,
                t1=end,
                dt0=0.01,
                y0=(x, jnp.zeros_like(x)),
                adjoint=kept,
                stepsize_controller=diffrax.PIDController(rtol=1e-5, atol=1e-5),
                max_steps=None if loop is scanned else 10_000,
            )
            assert solution.ys is not None
            return jnp.sum(solution.ys[0] ** 2)

        return run

    return Workload("adaptive solve", program, jnp.linspace(0.5, 2, count), None)


def humanoid(small: bool, steps: int | None = None) -> Workload:
    """Steps of MJX: the humanoid of its own tests, or a ball that falls.

    Args:
        small: Whether it is the ball.
        steps: How many, if not the usual number.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mujoco
        from mujoco import mjx
    models: Any = mujoco
    if small:
        model, n = models.MjModel.from_xml_string(_FALLING), steps or 2
    else:
        folder = f"{mjx.__path__[0]}/test_data/humanoid/humanoid.xml"
        model, n = models.MjModel.from_xml_path(folder), steps or 50
    on_device = mjx.put_model(model)
    data = mjx.make_data(on_device)

    def program(loop: Loop) -> Program:
        def run(v: Any) -> Any:
            step = lambda d: mjx.step(on_device, d)  # noqa: E731
            after = loop(step, data.replace(qvel=v), n)
            return jnp.sum(after.qpos**2) + jnp.sum(after.qvel**2)

        return run

    point = 0.1 * jnp.cos(jnp.arange(model.nv, dtype=data.qvel.dtype))
    return Workload("MJX humanoid", program, point, n)


_FALLING = """
<mujoco><option iterations="4" ls_iterations="4"/><worldbody>
  <geom type="plane" size="1 1 .1"/>
  <body pos="0 0 .1"><joint type="slide" axis="0 0 1"/><geom size=".1"/></body>
</worldbody></mujoco>"""

ALL = {
    "bptt": bptt,
    "paper": paper,
    "transformer": transformer,
    "adaptive": adaptive,
    "humanoid": humanoid,
    "navier-stokes": navier_stokes,
}

"""Time to trace, lower and compile: `retape.jax.grad` against forward mode.

The paper's example (Figs. 8 and 28), a physics step of MJX with a contact, loops nested
one to five deep, and small programs: what is compiled if there is next to nothing to
compile. Processor seconds, so that other work on the machine does not count; the least
of three, but of a program that takes five seconds and more. Of small programs the least
of five in turn, Python (tracing and lowering) and XLA apart.
Run: `python -m benchmarks.jax.compile_time`, or with `--small` for those alone; with
`--way` it prints what a first call goes through: traces, functions and modules.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from benchmarks.harness import EXAMPLES

import retape
import retape.jax

sys.path.insert(0, str(EXAMPLES))

import adaptive_grid  # noqa: E402

MODEL = """
<mujoco>
  <option timestep="0.005" iterations="3" ls_iterations="4" integrator="Euler"/>
  <worldbody>
    <geom type="plane" size="1 1 0.1"/>
    <body pos="0 0 0.095">
      <joint type="slide" axis="1 0 0"/>
      <joint type="slide" axis="0 0 1"/>
      <geom type="sphere" size="0.1" mass="1"/>
    </body>
  </worldbody>
</mujoco>
"""


def physics() -> tuple[Callable[[Any], Any], Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mujoco
        from mujoco import mjx
    model = mjx.put_model(mujoco.MjModel.from_xml_string(MODEL))
    data = mjx.make_data(model)

    def fall(v: Any) -> Any:
        after = mjx.step(model, data.replace(qvel=v))
        return jnp.sum(after.qpos**2) + jnp.sum(after.qvel**2)

    return fall, jnp.asarray([0.3, -0.7])


def nest(depth: int) -> tuple[Callable[[Any], Any], Any]:
    """Loops in loops, a little arithmetic in each."""

    def level(k: int, x: Any) -> Any:
        if k == 0:
            return jnp.sin(x) + 0.1 * x
        inner = lambda _, x: 1.01 * level(k - 1, x)  # noqa: E731
        return jax.lax.while_loop(
            lambda c: c[0] < 3, lambda c: (c[0] + 1, inner(*c)), (0, x)
        )[1]

    return (lambda x: jnp.sum(level(depth, x))), jnp.ones(100)


STATE = jnp.ones(16)
WEIGHTS = 0.05 * jnp.ones((16, 16))


def grown(x: Any) -> Any:
    return jax.lax.fori_loop(0, 10, lambda _, y: 1.1 * jnp.sin(y), x)


mapped = retape.jax.checkpointed(grown)


def short_scan(x: Any) -> Any:
    turn = lambda c, _: (jnp.tanh(WEIGHTS @ c), c[0])  # noqa: E731
    last, rows = jax.lax.scan(turn, x, None, length=10)
    return jnp.sum(last) + jnp.sum(rows**2)


def perceptron(x: Any) -> Any:
    return jnp.sum(WEIGHTS @ jax.nn.relu(WEIGHTS @ jax.nn.relu(WEIGHTS @ x)))


def chain(x: Any) -> Any:
    return jnp.sum(jnp.cos(jnp.exp(-2 * jnp.sin(x))) ** 2)


def two_loops(x: Any) -> Any:
    return jax.lax.fori_loop(0, 5, lambda _, x: grown(x), x).sum()


def branches(x: Any) -> Any:
    turn = lambda i, x: jax.lax.cond(i % 2 == 0, jnp.sin, jnp.cos, x)  # noqa: E731
    return jnp.sum(jax.lax.fori_loop(0, 10, turn, x))


def halved(x: Any) -> Any:
    """Of a length that only a run tells."""
    return jnp.sum(jax.lax.while_loop(lambda v: jnp.sum(v) > 1, lambda v: v / 2, x))


def pendulum(x: Any) -> Any:
    def step(state: Any) -> Any:
        angle, speed = state
        speed = speed - 1e-3 * jnp.sin(angle)
        return angle + 1e-3 * speed, speed

    return jax.lax.while_loop(lambda state: state[0] > 0, step, (x[0], 0.0 * x[0]))[1]


SMALL: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    **{f.__name__: (f, f) for f in (chain, perceptron, short_scan, two_loops)},
    **{f.__name__: (f, f) for f in (branches, halved, pendulum)},
    "vmap of checkpointed": (
        lambda x: jnp.sum(jax.vmap(grown)(jnp.outer(x, x))),
        lambda x: jnp.sum(jax.vmap(mapped)(jnp.outer(x, x))),
    ),
}
"""Programs of the same value: for forward mode, and for a sweep."""


def parts(fun: Callable[..., Any], x: Any) -> tuple[float, float]:
    """Processor seconds of Python and of XLA."""
    retape.jax.clear_caches()
    began = time.process_time()
    lowered = jax.jit(fun).lower(x)
    middle = time.process_time()
    lowered.compile()
    return middle - began, time.process_time() - middle


def small_row(
    name: str, forward: Callable[..., Any], swept: Callable[..., Any]
) -> None:
    plan = retape.fixed_space(snapshots=20)
    funs = (
        lambda x: jax.jvp(forward, (x,), (x,)),
        retape.jax.grad(swept, plan=plan),
    )
    taken = [[parts(fun, STATE) for fun in funs] for _ in range(5)]
    (f_python, f_xla), (python, xla) = (
        [min(part) for part in zip(*(turn[i] for turn in taken), strict=True)]
        for i in (0, 1)
    )
    ratio = (python + xla) / (f_python + f_xla)
    print(
        f"{name:24} {1e3 * f_python:5.0f} + {1e3 * f_xla:4.0f} ms "
        f"{1e3 * python:5.0f} + {1e3 * xla:4.0f} ms  {ratio:5.2f}"
    )


def way(name: str, fun: Callable[..., Any], x: Any, plan: Any) -> None:
    """What a first gradient goes through."""
    root, make = str(Path(retape.__file__).parent), jax.make_jaxpr
    functions: set[tuple[str, int]] = set()
    traces = 0

    def look(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(root):
            functions.add((code.co_filename, code.co_firstlineno))

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal traces
        traces += 1
        return make(*args, **kwargs)

    retape.jax.clear_caches()
    gradient = retape.jax.grad(fun, plan=plan)
    jax.make_jaxpr = counted
    sys.setprofile(look)
    try:
        jax.jit(gradient).lower(x)
    finally:
        sys.setprofile(None)
        jax.make_jaxpr = make
    modules = {file for file, _ in functions}
    print(f"{name:24} {traces:6} {len(functions):9} {len(modules):7}")


def ways() -> None:
    print(f"{'':24} traces functions modules")
    tree = retape.fixed_space(snapshots=20)
    for name in ("halved", "pendulum", "short_scan", "two_loops"):
        way(name, SMALL[name][1], STATE, tree)
    rows = jnp.ones((1000, 4000))
    scanned = lambda x: jnp.sum(  # noqa: E731
        jax.lax.scan(lambda c, r: (jnp.sin(c) * r, c), x, rows)[1]
    )
    way("scan within 40 MB", scanned, jnp.ones(4000), retape.within("40 MB"))


def seconds(fun: Callable[..., Any], *args: Any) -> float:
    """The least of three, where that does not take long."""
    taken: list[float] = []
    while len(taken) < 3 and sum(taken) < 5:
        retape.jax.clear_caches()
        began = time.process_time()
        jax.jit(fun).lower(*args).compile()
        taken.append(time.process_time() - began)
    return min(taken)


def row(name: str, fun: Callable[[Any], Any], x: Any) -> None:
    forward = seconds(lambda x: jax.jvp(fun, (x,), (x,)), x)
    plan = retape.fixed_space(snapshots=20)
    sweep = seconds(retape.jax.grad(fun, plan=plan), x)
    print(f"{name:24} {forward:6.2f} s {sweep:6.2f} s  {sweep / forward:5.2f}")


def small() -> None:
    print(f"{'small programs':24} {'forward':>15} {'retape':>15}  ratio")
    for name, pair in SMALL.items():
        small_row(name, *pair)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--way", action="store_true")
    chosen = parser.parse_args()
    if chosen.way or chosen.small:
        (ways if chosen.way else small)()
        return
    small()
    jax.config.update("jax_enable_x64", True)
    x = jnp.arange(1000.0, 0.0, -1.0)
    seconds(jnp.sum, x)
    print(f"{'':24}  forward   retape  ratio")
    row("adaptive grid", lambda x: adaptive_grid.program(x, 53.0), x)
    row("MJX step", *physics())
    for depth in range(1, 6):
        row(f"loops {depth} deep", *nest(depth))


if __name__ == "__main__":
    main()

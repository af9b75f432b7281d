"""Time to trace, lower and compile: `retape.jax.grad` against forward mode.

The paper's example (Figs. 8 and 28), a physics step of MJX with a contact, and loops
nested one to five deep. Processor seconds, so that other work on the machine does not
count; the least of three, but of a program that takes five seconds and more.
Run: `python benchmarks/jax/compile_time.py`.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import retape
import retape.jax

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

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


def main() -> None:
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

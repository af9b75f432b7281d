"""Calls outside of `jit`: the first, and one more of the same.

A pendulum of a thousand steps (README). "anew" makes the wrapper at every call, as in
`retape.jax.grad(f)(x)`; JAX's own forward mode stands beside it.
Run: `python benchmarks/jax/calls.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import retape
import retape.jax

PLAN = retape.fixed_space(snapshots=20)


def pendulum(angle: Any) -> Any:
    def step(state: Any) -> Any:
        angle, speed = state
        speed = speed - 1e-3 * jnp.sin(angle)
        return angle + 1e-3 * speed, speed

    return jax.lax.while_loop(lambda state: state[0] > 0, step, (angle, 0.0))[1]


kept = retape.jax.grad(pendulum, plan=PLAN)
again = retape.jax.checkpointed(pendulum, plan=PLAN)


def pulled_back(x: Any) -> Any:
    return retape.jax.vjp(pendulum, x, plan=PLAN)[1](1.0)


CALLS: dict[str, Callable[[Any], Any]] = {
    "gradient = retape.jax.grad(f); gradient(x)": kept,
    "retape.jax.grad(f)(x), anew": lambda x: retape.jax.grad(pendulum, plan=PLAN)(x),
    "jax.grad(checkpointed(f))(x), anew": lambda x: jax.grad(again)(x),
    "retape.jax.vjp(f, x), anew": pulled_back,
    "jax.vmap(gradient)": lambda x: jax.vmap(kept)(jnp.stack([x, x])),
    "jax.hessian(checkpointed(f)), anew": lambda x: jax.hessian(again)(x),
    "jax.jvp(f), JAX's own": lambda x: jax.jvp(pendulum, (x,), (1.0,)),
    "the same of jax.jit(f)": lambda x: jax.jvp(jax.jit(pendulum), (x,), (1.0,)),
}


def main() -> None:
    width = max(map(len, CALLS))
    print(f"{'':{width}}     first    another")
    for name, call in CALLS.items():
        retape.jax.clear_caches()
        taken = []
        for x in (1.0, 1.1, 1.2, 1.3, 1.4):
            began = time.perf_counter()
            jax.block_until_ready(call(jnp.float32(x)))
            taken.append(1e3 * (time.perf_counter() - began))
        print(f"{name:{width}}  {taken[0]:7.1f} ms {min(taken[1:]):7.1f} ms")


if __name__ == "__main__":
    main()

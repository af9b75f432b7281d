"""Ten million cheap steps with 64 snapshots: minutes, and flat memory.

Run: `python benchmarks/jax/long_run.py [STEPS]`.
"""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp

import retape
import retape.jax


def simulate(x: Any, steps: Any) -> Any:
    """A logistic map, perturbed: one multiplication or two a step."""
    x = jax.lax.fori_loop(0, steps, lambda _, x: x + 1e-7 * x * (1.0 - x), x)
    return jnp.sum(x)


def main(most: int) -> None:
    x = jnp.linspace(0.1, 0.9, 8)
    plan = retape.fixed_space(snapshots=64)
    for steps in (most // 100, most // 10, most):
        done = retape.jax.measure(simulate, x, steps, plan=plan)
        print(f"\n{steps} steps\n{done.report}", flush=True)
        gradient = retape.jax.value_and_grad(simulate, plan=plan)
        compiled = jax.jit(gradient).lower(x, steps).compile()
        print(f"temporary memory {compiled.memory_analysis().temp_size_in_bytes} bytes")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000)

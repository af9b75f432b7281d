"""The paper's example (Figs. 8 and 28), beside Equinox and scans written by hand.

n = 1000 elements, l = 3203, two nested loops of unknown length. Storing everything and
the scans by hand need to know the number of inner iterations; Equinox needs a bound for
each loop. Retape is given the program as it is. Double precision.

    python -m benchmarks.jax.paper [--length 3203]
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from math import isqrt
from typing import Any

import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from benchmarks.harness import EXAMPLES, asked
from benchmarks.jax.candidates import compare

import retape
import retape.jax

sys.path.insert(0, str(EXAMPLES))

import adaptive_grid as paper  # noqa: E402

N = 1000


def equinox(checkpoints: int, most: int) -> Callable[..., Any]:
    """The program with Equinox's checkpointed loops in place of JAX's.

    No loop is longer than `most`.
    """

    def loop(going: Any, body: Any, first: Any) -> Any:
        return eqxi.while_loop(
            going,
            body,
            first,
            max_steps=most,
            kind="checkpointed",
            checkpoints=min(checkpoints, most),
        )

    def program(x: Any, l: Any) -> Any:  # noqa: E741
        def outer(state: Any) -> Any:
            i, x = state
            last = paper.inner_length(i, l)
            inner = lambda s: (s[0] + 1, paper.update(s[1]))  # noqa: E731
            _, x = loop(lambda s: s[0] <= last, inner, (jnp.ones(()), x))
            return i + 1, x

        _, x = loop(lambda s: s[0] <= l, outer, (jnp.ones(()), x))
        return jnp.sum(x * x) / 2

    return program


def by_hand(steps: int, segments: int) -> Callable[..., Any]:
    """One scan of scans, the inner one checkpointed; `steps` is known."""
    length = -(-steps // segments)

    def program(x: Any, l: Any) -> Any:  # noqa: E741
        def step(state: Any, k: Any) -> tuple[Any, None]:
            i, j, last, x = state
            new = paper.update(x)
            over = j + 1 > last
            after = jnp.where(over, i + 1, i)
            then = (
                after,
                jnp.where(over, 1.0, j + 1),
                jnp.where(over, paper.inner_length(after, l), last),
                new,
            )
            keep = k < steps
            return jax.tree.map(lambda a, b: jnp.where(keep, a, b), then, state), None

        @functools.partial(jax.checkpoint, prevent_cse=False)
        def segment(state: Any, k: Any) -> tuple[Any, None]:
            ks = k * length + jnp.arange(length)
            inner = jax.checkpoint(step, prevent_cse=False)
            return jax.lax.scan(inner, state, ks)[0], None

        start = (jnp.ones(()), jnp.ones(()), paper.inner_length(1.0, l), x)
        (_, _, _, x), _ = jax.lax.scan(segment, start, jnp.arange(segments))
        return jnp.sum(x * x) / 2

    return program


def main() -> None:
    """Print the table."""
    length = asked(__doc__, quick={"length": 53}, length=3203).length
    jax.config.update("jax_enable_x64", True)
    steps = paper.inner_iterations(length)
    store = functools.partial(paper.flattened, steps)
    candidates = {
        "store everything": jax.grad(functools.partial(store, branch=False)),
        "the same, scalars held": jax.grad(functools.partial(store, branch=True)),
        "scans by hand": jax.grad(by_hand(steps, isqrt(steps))),
        "equinox, 20 snapshots": jax.grad(equinox(20, length)),
    }
    plans = {
        "20 snapshots": retape.fixed_space(snapshots=20),
        "20 snapshots, stage 32": retape.fixed_space(snapshots=20, stage=32),
        "20 snapshots, stage 12": retape.fixed_space(snapshots=20, stage=12),
        "2.8 MB": retape.within("2.8 MB"),
    }
    for name, plan in plans.items():
        candidates[f"retape, {name}"] = retape.jax.grad(paper.program, plan=plan)
    args = (paper.start(N), float(length))
    title = f"Fig. 8, l = {length}, {steps} inner iterations"
    compare(title, candidates, args, rounds=3)


if __name__ == "__main__":
    main()

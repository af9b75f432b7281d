"""Ratios to plain reverse mode on one release of JAX: that of the Python which runs it.

Fig. 8, BPTT and a transformer of 12 layers, each stored in full and under plans, as one
row of Markdown for each; so two releases are compared by running it with two Pythons:

    .venv/bin/python benchmarks/jax/releases.py
    .venv/newest/bin/python benchmarks/jax/releases.py
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import bptt
import jax
import jax.numpy as jnp
import numpy as np
import paper
import transformer
from _measure import Row, compare

import retape
import retape.jax

GRID = 1601
"""The paper's `l`, half of that of `paper.py`."""
PLAIN = "all stored"

Candidates = dict[str, Callable[..., Any]]


def adaptive_grid() -> tuple[str, Candidates, Sequence[Any]]:
    """Two nested loops of unknown length, of which plain has to know the steps."""
    steps = paper.paper.inner_iterations(GRID)
    store = functools.partial(paper.paper.flattened, steps)
    candidates: Candidates = {
        PLAIN: jax.grad(functools.partial(store, branch=False)),
        "20 snapshots": _ours(paper.paper.program, retape.fixed_space(snapshots=20)),
        "2.8 MB": _ours(paper.paper.program, retape.within("2.8 MB")),
    }
    return f"Fig. 8, l = {GRID}", candidates, (paper.paper.start(1000), float(GRID))


def through_time() -> tuple[str, Candidates, Sequence[Any]]:
    """10,000 cheap steps."""
    args = (jnp.linspace(1.0, 2.0, bptt.SIZE, dtype=jnp.float32), jnp.float32(0.7))
    candidates: Candidates = {PLAIN: jax.grad(bptt.loss(bptt.plain))}
    for size in ("0.58 MB", "0.15 MB"):
        plan = retape.within(size)
        candidates[size] = _ours(bptt.loss(bptt.plain), plan)
        candidates[f"{size}, length unknown"] = _ours(bptt.loss(bptt.unknown), plan)
    return "BPTT, 10,000 steps", candidates, (*args, bptt.STEPS)


def layers() -> tuple[str, Candidates, Sequence[Any]]:
    """Few steps, each of them dear."""
    shape = (transformer.BATCH, transformer.TOKENS, transformer.WIDTH)
    x = jnp.asarray(np.random.default_rng(1).normal(size=shape), np.float32)
    candidates: Candidates = {
        PLAIN: jax.grad(transformer.plain),
        "`jax.checkpoint` of a layer": jax.grad(transformer.remat_body),
        "25 MB": _ours(transformer.plain, retape.within("25 MB")),
    }
    return "transformer, 12 layers", candidates, (transformer.weights(12), x)


def _ours(fun: Callable[..., Any], plan: retape.Plan) -> Callable[..., Any]:
    return retape.jax.grad(fun, plan=plan)


def told(program: str, row: Row, plain: Row) -> str:
    """A row of the table."""
    built = row.compile_seconds / plain.compile_seconds
    milliseconds = 1e3 * row.seconds
    return (
        f"| {jax.__version__} | {program} | {row.name} | {row.megabytes:.2f} MB | "
        f"{milliseconds:.0f} ms | {row.ratio:.2f} | {built:.1f} | {row.error:.0e} |"
    )


def main() -> None:
    print("| JAX | program | | temporaries | time | ratio | compiling | difference |")
    print("|---|---|---|---|---|---|---|---|")
    for made, wide in ((adaptive_grid, True), (through_time, False), (layers, False)):
        with jax.enable_x64(wide):
            program, candidates, args = made()
            rows = compare(candidates, args, base=PLAIN, rounds=7)
        for row in rows:
            print(told(program, row, rows[0]), flush=True)


if __name__ == "__main__":
    main()

"""Ratios to plain reverse mode on one release of JAX: that of the Python which runs it.

Fig. 8, BPTT and a transformer of 12 layers, each stored in full and under plans; so two
releases are compared by running it with two Pythons:

    .venv/bin/python -m benchmarks.jax.releases [--small]
    .venv/newest/bin/python -m benchmarks.jax.releases
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
from benchmarks.accelerators.workloads import bptt, scanned, unknown
from benchmarks.harness import Table
from benchmarks.jax import paper
from benchmarks.jax.candidates import compare
from benchmarks.layers.model import Shape, loss_by, scan_of, start, weights

import retape
import retape.jax

PLAIN = "all stored"
COLUMNS = ("JAX", "program", "", "MB", "ms", "ratio", "compiling", "difference")

Candidates = dict[str, Callable[..., Any]]


def adaptive_grid(small: bool) -> tuple[str, Candidates, Sequence[Any]]:
    """Two nested loops of unknown length, of which plain has to know the steps."""
    length = 53 if small else 1601
    store = partial(paper.paper.flattened, paper.paper.inner_iterations(length))
    candidates: Candidates = {
        PLAIN: jax.grad(partial(store, branch=False)),
        "20 snapshots": _ours(paper.paper.program, retape.fixed_space(snapshots=20)),
        "2.8 MB": _ours(paper.paper.program, retape.within("2.8 MB")),
    }
    return f"Fig. 8, l = {length}", candidates, (paper.paper.start(1000), float(length))


def through_time(small: bool) -> tuple[str, Candidates, Sequence[Any]]:
    """Cheap steps, 10,000 of them."""
    work = bptt(small)
    candidates: Candidates = {PLAIN: jax.grad(work.program(scanned))}
    for size in ("0.58 MB", "0.15 MB"):
        plan = retape.within(size)
        candidates[size] = _ours(work.program(scanned), plan)
        candidates[f"{size}, length unknown"] = _ours(work.program(unknown), plan)
    return f"BPTT, {work.steps} steps", candidates, (work.point,)


def layers(small: bool) -> tuple[str, Candidates, Sequence[Any]]:
    """Few steps, each of them dear."""
    shape = Shape(layers=2 if small else 12, batch=4)
    candidates: Candidates = {
        PLAIN: jax.grad(loss_by(scan_of(shape))),
        "`jax.checkpoint` of a layer": jax.grad(loss_by(scan_of(shape, remat=True))),
        "25 MB": _ours(loss_by(scan_of(shape)), retape.within("25 MB")),
    }
    args = weights(shape), start(shape)
    return f"transformer, {shape.layers} layers", candidates, args


def _ours(fun: Callable[..., Any], plan: retape.Plan) -> Callable[..., Any]:
    return retape.jax.grad(fun, plan=plan)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="small sizes")
    small = parser.parse_args().small
    table = Table(*COLUMNS)
    for make, wide in ((adaptive_grid, True), (through_time, False), (layers, False)):
        with jax.enable_x64(wide):
            program, candidates, args = make(small)
            rows = compare(candidates, args, rounds=7)
        for row in rows:
            built = row.compile_seconds / rows[0].compile_seconds
            figures = (row.megabytes, 1e3 * row.seconds, row.ratio, built)
            table.row(jax.__version__, program, row.name, *figures, f"{row.error:.0e}")


if __name__ == "__main__":
    main()

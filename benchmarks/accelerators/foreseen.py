"""What `retape.jax.advise` foresees of 48 layers, beside what running them takes.

    python -m benchmarks.accelerators.foreseen [--quick]

Every candidate of the advice for `examples/forty_eight_layers.py` is run on this
machine's device, in the order of its bytes, so that the device's own counter of the
peak, which never falls, is that of the latest. The extra work that is foreseen counts
operations; a backward does about twice those of a forward. A CPU gets small sizes.
"""

from __future__ import annotations

import sys
import time
import warnings
from functools import partial
from typing import Any

import jax
from benchmarks.accelerators.workloads import peak_bytes
from benchmarks.harness import EXAMPLES, Table, asked, in_turn
from benchmarks.jax.candidates import compiled

import retape.jax


def main() -> None:
    """Print a row for each candidate, the plain gradient first."""
    small = asked(__doc__).quick or jax.default_backend() == "cpu"
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(EXAMPLES))
    import forty_eight_layers as example

    if small:
        example.TOKENS, example.WIDTH = 512, 64
    loss, *types = example.problem()
    stats = jax.devices()[0].memory_stats() or {}
    found = retape.jax.advise(loss, *types, memory=stats.get("bytes_limit", 2**40))
    args = [_drawn(number, each) for number, each in enumerate(types)]
    table = Table("", "foreseen GiB", "peak GiB", "extra work", "s", "TFLOP/s, plain's")
    work = 6 * example.LAYERS * example.TOKENS * example.WIDTH**2
    for each in sorted(found.candidates, key=lambda c: c.peak_bytes):
        marked = retape.jax.checkpoint(loss, policy=each.policy)
        fun = loss if each.policy is None else marked
        foreseen = each.peak_bytes / 2**30
        try:
            gradient = compiled(jax.value_and_grad(fun), *args)
            times = in_turn({"": partial(gradient, *args)}, 3, time.perf_counter)
        except Exception as error:
            table.row(each.name, foreseen, None, each.extra, type(error).__name__, None)
            continue
        seconds, peak = times[""].median, peak_bytes()
        rate = work / seconds / 1e12
        table.row(each.name, foreseen, peak and peak / 2**30, each.extra, seconds, rate)


def _drawn(number: int, kind: Any) -> Any:
    """Normal numbers, scaled so that a residual layer keeps its size."""
    drawn = jax.random.normal(jax.random.key(number), kind.shape, kind.dtype)
    return drawn / kind.shape[-1] ** 0.5 if number == 0 else drawn


if __name__ == "__main__":
    main()

"""What `retape.jax.advise` foresees of 48 layers, beside what running them takes.

Every candidate of the advice for `examples/forty_eight_layers.py` is run on this
machine's device, in the order of its bytes, so that the device's own counter of the
peak, which never falls, is that of the latest. The extra work that is foreseen counts
operations; a backward does about twice those of a forward.

Run: `python -m benchmarks.accelerators.foreseen [--small]`. A CPU gets small sizes.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from typing import Any

import jax
from benchmarks.harness import EXAMPLES, Table

import retape.jax

ROUNDS = 3


def main() -> None:
    """Print a row for each candidate, the plain gradient first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="a thousandth of it")
    small = parser.parse_args().small or jax.default_backend() == "cpu"
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
        foreseen = each.peak_bytes / 2**30
        try:
            seconds, peak = _run(loss, each.policy, args)
        except Exception as error:
            table.row(each.name, foreseen, None, each.extra, type(error).__name__, None)
            continue
        rate = work / seconds / 1e12
        table.row(each.name, foreseen, peak, each.extra, seconds, rate)


def _drawn(number: int, kind: Any) -> Any:
    """Normal numbers, scaled so that a residual layer keeps its size."""
    drawn = jax.random.normal(jax.random.key(number), kind.shape, kind.dtype)
    return drawn / kind.shape[-1] ** 0.5 if number == 0 else drawn


def _run(loss: Any, policy: Any, args: list[Any]) -> tuple[float, float | None]:
    """The median of the seconds, and the most GiB that the device ever held."""
    fun = loss if policy is None else retape.jax.checkpoint(loss, policy=policy)
    gradient = jax.jit(jax.value_and_grad(fun)).lower(*args).compile()
    taken = []
    for _ in range(ROUNDS + 1):
        began = time.perf_counter()
        jax.block_until_ready(gradient(*args))
        taken.append(time.perf_counter() - began)
    peak = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    return sorted(taken[1:])[ROUNDS // 2], peak and peak / 2**30


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()

"""Peak memory against time of the gradient of a 48-layer transformer, many ways.

    python -m benchmarks.layers.run [--quick] [--rounds 5] [loop row]

One table for a loop over stacked layers, one for layers called one after the other.
Memory is the compiler's figure for temporaries; times are processor seconds, the median
of all rounds.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
from benchmarks.harness import asked
from benchmarks.jax.candidates import compare
from benchmarks.layers.model import (
    Shape,
    layer,
    loss_by,
    scan_of,
    start,
    weights,
)
from jax import lax

import retape
import retape.jax
from retape.jax import policies

Loss = Callable[..., Any]
SMALL = Shape(layers=8, tokens=32, width=32)


def looped(shape: Shape) -> dict[str, Loss]:
    """Ways to go through stacked layers."""
    body = lambda h, w: (layer(shape, h, w), None)  # noqa: E731

    def by(**options: Any) -> Loss:
        return loss_by(lambda h, w: retape.jax.scan(body, h, w, **options)[0])

    return {
        "plain scan": loss_by(scan_of(shape)),
        "scan, jax.checkpoint": loss_by(scan_of(shape, remat=True)),
        "nested by hand": loss_by(functools.partial(nested, body, shape)),
        "retape, 1 level": by(levels=1),
        "retape, 2 levels": by(levels=2),
        "retape, plan of 8": by(plan=retape.fixed_space(snapshots=8, stage=1)),
    }


def nested(body: Any, shape: Shape, h: Any, w: Any) -> Any:
    """Two loops, as people write them: two factors as near as may be."""
    n = shape.layers
    inner = next(a for a in range(int(n**0.5), 0, -1) if n % a == 0)
    outer = n // inner
    folded = jax.tree.map(lambda v: v.reshape(outer, inner, *v.shape[1:]), w)
    marked = functools.partial(jax.checkpoint, prevent_cse=False)
    return lax.scan(marked(lambda h, w: lax.scan(marked(body), h, w)), h, folded)[0]


def in_a_row(shape: Shape, budgets: Sequence[str]) -> dict[str, Loss]:
    """Ways to call the layers one after the other."""
    one = functools.partial(layer, shape)

    def by(step: Any) -> Loss:
        return loss_by(lambda h, w: functools.reduce(step, w, h))

    whole = by(one)
    chosen = {f"within {size}": policies.within(size) for size in budgets}
    chosen["sqrt"] = policies.sqrt()
    ways: dict[str, Loss] = {"plain": whole, "jax.checkpoint": by(jax.checkpoint(one))}
    ways["retape.checkpoint"] = by(retape.jax.checkpoint(one))
    for name, policy in chosen.items():
        ways[f"retape, {name}"] = retape.jax.checkpoint(whole, policy=policy)
    return ways


def listed(w: dict[str, Any]) -> list[dict[str, Any]]:
    """One set of weights for each layer."""
    return [{k: v[i] for k, v in w.items()} for i in range(w["q"].shape[0])]


def main() -> None:
    """Print both tables."""
    quick = {"rounds": 2, "budgets": "0.8MB"}
    usual = "10MB 20MB 40MB 80MB 120MB"
    given = asked(__doc__, ("loop", "row"), quick, rounds=5, budgets=usual)
    shape = SMALL if given.quick else Shape()
    w, h = weights(shape), start(shape)
    tables: dict[str, tuple[dict[str, Loss], Any]] = {
        "loop": (looped(shape), w),
        "row": (in_a_row(shape, given.budgets.split()), listed(w)),
    }
    for name in given.names:
        ways, each = tables[name]
        graded = {name: jax.value_and_grad(loss) for name, loss in ways.items()}
        title = f"{shape.layers} layers in a {name}"
        compare(title, graded, (each, h), given.rounds, time.process_time)


if __name__ == "__main__":
    main()

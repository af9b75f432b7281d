"""Peak memory against time of the gradient of a 48-layer transformer, many ways.

    python -m benchmarks.layers.run [--small] [--rounds 5] [--part loop]

One table for a loop over stacked layers, one for layers called one after the other,
and what `retape.jax.advise` predicts against what the compiler says.
Memory is the compiler's figure for temporaries; times are processor seconds, the median
of all rounds. A peer's row is *met* if some row of ours takes no more memory and no
more time, within the spread that the same program shows from run to run.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
from benchmarks.harness import Table
from benchmarks.jax.candidates import Row, compare, compiled, show
from benchmarks.layers.model import (
    Linen,
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
PARTS = ("loop", "unrolled", "plan")


def looped(shape: Shape) -> dict[str, Loss]:
    """Ways to go through stacked layers."""
    body = lambda h, w: (layer(shape, h, w), None)  # noqa: E731
    marked = jax.checkpoint(body, prevent_cse=False)
    dots = jax.checkpoint(
        body,
        prevent_cse=False,
        policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    )

    def by(**options: Any) -> Loss:
        return loss_by(lambda h, w: retape.jax.scan(body, h, w, **options)[0])

    return {
        "plain scan": loss_by(scan_of(shape)),
        "scan, jax.checkpoint": loss_by(scan_of(shape, remat=True)),
        "scan, dots saved": loss_by(lambda h, w: lax.scan(dots, h, w)[0]),
        "nested by hand": loss_by(functools.partial(nested, marked, shape)),
        "nn.remat_scan": loss_by(functools.partial(remat_scan, shape)),
        "retape, 1 level": by(levels=1),
        "retape, 2 levels": by(levels=2),
        "retape, 3 levels": by(levels=3),
        "retape, segments of 6": by(segment_length=6),
        "retape, selective": by(levels=1, policy=policies.selective()),
        "retape, selective, 2": by(levels=2, policy=policies.selective()),
        "retape, all saved, 2": by(
            segment_length=4, policy=jax.checkpoint_policies.everything_saveable
        ),
        "retape, plan of 8": by(plan=retape.fixed_space(snapshots=8, stage=1)),
    }


def pair(n: int) -> tuple[int, int]:
    """Two factors, as near to one another as may be, the larger first."""
    a = next(a for a in range(int(n**0.5), 0, -1) if n % a == 0)
    return n // a, a


def nested(body: Any, shape: Shape, h: Any, w: Any) -> Any:
    """Two loops, as people write them."""
    outer, inner = pair(shape.layers)
    folded = jax.tree.map(lambda v: v.reshape(outer, inner, *v.shape[1:]), w)
    segment = jax.checkpoint(lambda h, w: lax.scan(body, h, w), prevent_cse=False)
    return lax.scan(segment, h, folded)[0]


def remat_scan(shape: Shape, h: Any, w: Any) -> Any:
    """Flax Linen's, with the same weights."""
    inner, outer = sorted(pair(shape.layers))
    stack = nn.remat_scan(Linen, lengths=(inner, outer))(shape)
    folded = jax.tree.map(lambda v: v.reshape(inner, outer, *v.shape[1:]), w)
    return stack.apply({"params": folded}, h)


def unrolled(shape: Shape, budgets: Sequence[float]) -> dict[str, Loss]:
    """Ways to call the layers one after the other."""
    one = functools.partial(layer, shape)

    def by(step: Any) -> Loss:
        return loss_by(functools.partial(through, step))

    whole = loss_by(functools.partial(through, one))
    ways: dict[str, Loss] = {
        "plain": whole,
        "jax.checkpoint": by(jax.checkpoint(one)),
        "retape.checkpoint": by(retape.jax.checkpoint(one)),
        "retape, selective": by(
            retape.jax.checkpoint(one, policy=policies.selective())
        ),
        "retape, sqrt": retape.jax.checkpoint(whole, policy=policies.sqrt()),
    }
    for megabytes in budgets:
        within = policies.within(int(1e6 * megabytes))
        name = f"retape, within {megabytes:g} MB"
        ways[name] = retape.jax.checkpoint(whole, policy=within)
    return ways


def through(step: Any, h: Any, w: Any) -> Any:
    for each in w:
        h = step(h, each)
    return h


def listed(w: dict[str, Any]) -> list[dict[str, Any]]:
    """One set of weights for each layer."""
    return [{k: v[i] for k, v in w.items()} for i in range(w["q"].shape[0])]


def predictions(shape: Shape, args: Sequence[Any], budgets: Sequence[float]) -> float:
    """What the planner says and what the compiler does; the largest relative error."""
    loss = loss_by(scan_of(shape))
    types = jax.tree.map(lambda v: jax.ShapeDtypeStruct(v.shape, v.dtype), args)
    fixed = sum(v.nbytes for v in jax.tree.leaves(args)) + sum(
        v.nbytes for v in jax.tree.leaves(args[0])
    )
    worst = 0.0
    for megabytes in budgets:
        found = retape.jax.advise(loss, *types, memory=fixed + int(1e6 * megabytes))
        taken = compiled(jax.value_and_grad(found.apply(loss)), *args).nbytes
        said = found.chosen.temp_bytes
        worst = max(worst, abs(said - taken) / taken)
        print(f"\n{megabytes:g} MB beside arguments and gradients:\n{found}")
        print(f"temporaries: predicted {said / 1e6:.2f} MB, found {taken / 1e6:.2f} MB")
    return worst


def show_work(ways: dict[str, Loss], args: Sequence[Any]) -> None:
    """Floating-point operations of each gradient, over those of the first.

    The compiler counts a loop's body once, so this is for programs without loops.
    """
    table = Table("", "operations over the first one's")
    once = None
    for name, way in ways.items():
        flops = compiled(way, *args).program.cost_analysis()["flops"]
        once = once or flops
        table.row(name, flops / once)


def unmet(rows: Sequence[Row], spread: float = 0.1) -> list[str]:
    """The peers that no row of ours matches in both memory and time."""
    ours = [r for r in rows if r.name.startswith("retape")]
    return [
        peer.name
        for peer in rows
        if peer not in ours
        and not any(
            o.megabytes <= 1.01 * peer.megabytes
            and o.ratio <= (1 + spread) * peer.ratio
            for o in ours
        )
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="8 layers, 32 tokens")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--layers", type=int, help="48 by default")
    parser.add_argument("--budgets", type=float, nargs="*", help="in MB, unrolled")
    parser.add_argument("--part", choices=[*PARTS, "all"], default="all")
    options = parser.parse_args(arguments)
    small = Shape(layers=8, tokens=32, width=32)
    shape = small if options.small else Shape()
    if options.layers:
        shape = shape._replace(layers=options.layers)
    budgets = [0.3, 0.4, 0.6, 0.8, 1] if options.small else [10, 20, 40, 80, 120]
    if options.budgets is not None:
        budgets = options.budgets
    w, h = weights(shape), start(shape)
    parts = PARTS if options.part == "all" else [options.part]
    tables: list[tuple[str, dict[str, Loss], Any]] = []
    if "loop" in parts:
        tables.append(("layers in a loop", looped(shape), w))
    if "unrolled" in parts:
        tables.append(("layers in a row", unrolled(shape, budgets), listed(w)))
    for title, ways, each in tables:
        graded = {name: jax.value_and_grad(loss) for name, loss in ways.items()}
        in_a_row = isinstance(each, list)
        if in_a_row:
            show_work(graded, (each, h))
        rows = compare(graded, (each, h), options.rounds, time.process_time)
        show(f"{shape.layers} {title}", rows)
        print("peers not met:", unmet(rows) or "none", flush=True)
    if "plan" in parts:
        worst = predictions(shape, (w, h), budgets)
        print(f"largest error of the planner's predictions: {100 * worst:.1f} %")
        if worst > 0.1:
            raise SystemExit("a prediction is more than a tenth off")


if __name__ == "__main__":
    main()

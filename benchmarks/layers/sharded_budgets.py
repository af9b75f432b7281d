"""Ten budgets for each of three layouts of a small transformer on 8 devices.

Fully sharded (FSDP), data parallel and tensor parallel; automatic axes. The compiled
memory analysis, which is for one device, says what a gradient takes. Every budget is
held, and none is refused that the plain gradient meets.

    python -m benchmarks.layers.sharded_budgets [--layers 12] [--budgets 10]
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

from typing import Any

import jax
import jax.numpy as jnp
from benchmarks.harness import Table
from benchmarks.jax.candidates import compiled
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import retape
import retape.jax

WIDTH, TOKENS, BATCH = 64, 32, 32

LAYOUTS: dict[str, tuple[dict[str, Any], Any]] = {
    "FSDP": (
        {"qkv": P(None, "d"), "out": P(None, "d"), "up": P(None, "d")}
        | {"down": P(None, "d")},
        P("d"),
    ),
    "data parallel": (
        {"qkv": P(), "out": P(), "up": P(), "down": P()},
        P("d"),
    ),
    "tensor parallel": (
        {"qkv": P(None, None, None, "d"), "out": P(None, "d")}
        | {"up": P(None, None, "d"), "down": P(None, "d")},
        P(),
    ),
}
"""Of each weight, whose first axis is that of the layers, and of the batch."""


def layer(x: Any, w: Any) -> Any:
    q, k, v = jnp.einsum("btw,wch->cbth", x, w["qkv"])
    heads = lambda a: a.reshape(*a.shape[:2], 8, -1)  # noqa: E731
    scores = jnp.einsum("bthd,bshd->bhts", heads(q), heads(k))
    mixed = jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), heads(v))
    x = x + mixed.reshape(x.shape) @ w["out"]
    return x + jax.nn.gelu(x @ w["up"]) @ w["down"]


def loss(w: Any, x: Any) -> Any:
    return (lax.scan(lambda x, w: (layer(x, w), None), x, w)[0] ** 2).mean()


def arguments(layout: str, layers: int) -> tuple[Any, Any]:
    mesh = jax.make_mesh((8,), ("d",), axis_types=(AxisType.Auto,))
    shapes = {"qkv": (WIDTH, 3, WIDTH), "out": (WIDTH, WIDTH)}
    shapes |= {"up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    weights, batch = LAYOUTS[layout]

    def struct(shape: tuple[int, ...], spec: Any) -> Any:
        where = NamedSharding(mesh, spec)
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=where)

    w = {k: struct((layers, *s), weights[k]) for k, s in shapes.items()}
    return w, struct((BATCH, TOKENS, WIDTH), batch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--budgets", type=int, default=10)
    parser.add_argument("--layouts", nargs="*", default=list(LAYOUTS))
    given = parser.parse_args()
    failed = 0
    table = Table("layout", "plain MB", "budget MB", "MB on each device", "")
    for layout in given.layouts:
        args = arguments(layout, given.layers)
        most = compiled(jax.grad(loss), *args).nbytes
        for i in range(given.budgets):
            budget = round(most * (0.25 + 0.85 * i / max(1, given.budgets - 1)))
            try:
                ours = retape.jax.grad(loss, plan=retape.within(budget))
                got = compiled(ours, *args).nbytes
            except retape.BudgetError as error:
                wrong = budget >= most
                told = f"refused, at least {(error.least or 0) / 1e6:.3f}"
            else:
                wrong, told = got > budget, got / 1e6
            failed += wrong
            mark = "WRONG" if wrong else ""
            table.row(layout, most / 1e6, budget / 1e6, told, mark)
    print(f"{failed} of {len(given.layouts) * given.budgets} wrong")


if __name__ == "__main__":
    main()

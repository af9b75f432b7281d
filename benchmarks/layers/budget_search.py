"""What a search for a budget costs: compilations at ten budgets, for three programs.

Compilations are counted by JAX's own monitoring, without the one that any gradient
needs. `alone`: all that is remembered is forgotten before each budget. Beside them what
the compiler reports, and the work over that of the plain gradient: with more memory it
never rises, in whatever order budgets are asked for.

    python -m benchmarks.layers.budget_search [--budgets 10]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from benchmarks.harness import Table
from benchmarks.jax.candidates import compiled
from jax import lax

import retape
import retape.jax
from retape.jax import checkpoint

Program = tuple[Callable[..., Any], tuple[Any, ...]]

COLUMNS = ("budget", "bytes", "operations", "compilations", "seconds")
EVENT = "/jax/core/compile/backend_compile_duration"
made: list[str] = []


def listen(event: str, _: float, **__: Any) -> None:
    made.extend([event] * (event == EVENT))


def drawn(*shape: int) -> Any:
    return jnp.asarray(np.random.default_rng(len(shape)).normal(size=shape)) / 6


def perceptron(w: Any, x: Any) -> Any:
    for each in w:
        x = jnp.tanh(x @ each)
    return (x**2).sum()


def attention(w: Any, h: Any) -> Any:
    for each in w:
        scores = jax.nn.softmax(h @ each["q"] @ h.T)
        h = h + jnp.tanh(scores @ h @ each["v"])
        h = h + jax.nn.gelu(h @ each["up"]) @ each["down"]
    return (h**2).mean()


def convolutions(w: Any, x: Any) -> Any:
    for each in w:
        x = x + jax.nn.relu(lax.conv_general_dilated(x, each, (1, 1), "SAME"))
    return (x**2).mean()


def programs() -> dict[str, Program]:
    sizes = {"q": (16, 16), "v": (16, 16), "up": (16, 128), "down": (128, 16)}
    layer = {name: drawn(*size) for name, size in sizes.items()}
    return {
        "perceptron": (perceptron, ([drawn(32, 32)] * 16, drawn(128, 32))),
        "attention": (attention, ([layer] * 6, drawn(64, 16))),
        "convolutions": (convolutions, ([drawn(4, 4, 3, 3)] * 8, drawn(2, 4, 24, 24))),
    }


def taken(fun: Callable[..., Any], args: tuple[Any, ...]) -> tuple[int, float, float]:
    """Temporaries and operations of the gradient, and seconds to compile it."""
    made_now = compiled(jax.grad(fun), *args)
    operations = made_now.program.cost_analysis()["flops"]
    return made_now.nbytes, operations, made_now.seconds


def least_of(fun: Callable[..., Any], args: tuple[Any, ...]) -> int:
    try:
        jax.grad(checkpoint(fun, policy=retape.within(1)))(*args)
    except retape.BudgetError as error:
        return error.least or 0
    raise AssertionError("a byte is not enough")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budgets", type=int, default=10)
    count = parser.parse_args().budgets
    jax.monitoring.register_event_duration_secs_listener(listen)
    for name, (fun, args) in programs().items():
        most, base, _ = taken(fun, args)
        retape.jax.clear_caches()
        made.clear()
        least = least_of(fun, args)
        print(f"{name}: plain {most} B, least {least} B, refused after {len(made)}")
        for alone in (False, True):
            table = Table(*COLUMNS, title="alone" if alone else "one after the other")
            retape.jax.clear_caches()
            for i in range(count):
                if alone:
                    retape.jax.clear_caches()
                budget = least + (most - least) * i // max(1, count - 1)
                marked = checkpoint(fun, policy=retape.within(budget))
                made.clear()
                size, work, seconds = taken(marked, args)
                assert size <= budget
                table.row(budget, size, work / base, len(made) - 1, seconds)


if __name__ == "__main__":
    main()

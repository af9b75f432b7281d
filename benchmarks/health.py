"""What watching a gradient's health costs, in each engine: with and without, in turn.

    python -m benchmarks.health [--rounds 15] [driver|jax|torch ...]

Programs have steps that are cheap, middling and dear, where watching weighs most and
least: `retape.diagnose` of step functions, `retape.jax.measure(health=True)`, compiled
before, and `retape.torch.diagnose`, plain and within a budget.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from benchmarks.harness import Clock, Table, asked, in_turn

import retape

Pair = tuple[Callable[[], object], Callable[[], object]]
"""The same call, watched and not."""
PLAN = retape.fixed_space(snapshots=10)


def driver() -> Iterator[tuple[str, Pair]]:
    """Step functions of NumPy and of Python."""

    def advect(x: Any, k: int) -> Any:
        return x + 0.1 * (np.roll(x, 1) - x) - 1e-3 * np.sin(x)

    def advect_back(x: Any, k: int, g: Any) -> Any:
        return g + 0.1 * (np.roll(g, -1) - g) - 1e-3 * np.cos(x) * g

    def damp(x: float, k: int) -> float:
        return x * 0.999 + 0.001

    def damp_back(x: float, k: int, g: float) -> float:
        return g * 0.999

    field = partial(np.linspace, 0.0, 1.0)
    programs: dict[str, tuple[Any, Any, Any, int]] = {
        "10 numbers, 2,000 steps": (advect, advect_back, field(10), 2000),
        "1,000 numbers, 2,000 steps": (advect, advect_back, field(1000), 2000),
        "100,000 numbers, 100 steps": (advect, advect_back, field(100_000), 100),
        "a float, 20,000 steps": (damp, damp_back, 0.5, 20_000),
    }
    for name, (step, back, x0, steps) in programs.items():
        program = retape.Program(step, back)
        how: dict[str, Any] = {"seed": lambda x: x, "steps": steps, "plan": PLAN}
        watched, without = (
            partial(f, program, x0, **how) for f in (retape.diagnose, retape.adjoint)
        )
        yield name, (watched, without)


def in_jax() -> Iterator[tuple[str, Pair]]:
    """Loops of JAX."""
    import jax
    import jax.numpy as jnp

    import retape.jax

    def advected(size: int, steps: int) -> Callable[[Any], Any]:
        def step(_: Any, y: Any) -> Any:
            return y + 0.1 * (jnp.roll(y, 1) - y) - 1e-3 * jnp.sin(y)

        loop = partial(jax.lax.fori_loop, 0, steps, step)
        return lambda x: jnp.sum(loop(jnp.full(size, x)) ** 2)

    programs = {
        "1,000 numbers, 2,000 steps": advected(1000, 2000),
        "1,000 numbers, 20,000 steps": advected(1000, 20_000),
        "100,000 numbers, 100 steps": advected(100_000, 100),
    }

    def call(fun: Callable[[Any], Any], **options: Any) -> None:
        found = retape.jax.measure(fun, 0.5, plan=PLAN, **options)
        jax.block_until_ready(found.gradient)

    for name, fun in programs.items():
        yield name, (partial(call, fun, health=True), partial(call, fun))


def in_torch() -> Iterator[tuple[str, Pair]]:
    """Modules and a loop of PyTorch, plain and in a budget."""
    import torch
    from benchmarks.torch.programs import Program, of

    import retape.torch

    nn = torch.nn
    layers = [m for _ in range(20) for m in (nn.Linear(256, 256), nn.Tanh())]

    def advected(size: int, steps: int) -> Program:
        x = torch.linspace(0.0, 1.0, size, requires_grad=True)

        def run() -> torch.Tensor:
            y = x
            for _ in range(steps):
                y = y + 0.1 * (torch.roll(y, 1) - y) - 1e-3 * torch.sin(y)
            return y.square().mean()

        return Program(run, [x])

    stack = of(nn.Sequential(*layers), torch.ones(256, 256))
    programs = {
        "20 layers of 256, 256 rows": (stack, "4MB"),
        "1,000 numbers, 200 steps": (advected(1000, 200), "300kB"),
        "300,000 numbers, 20 steps": (advected(300_000, 20), "20MB"),
    }

    def watched(run: Callable[[], Any]) -> None:
        assert retape.torch.diagnose(run).fault is None

    for name, (program, memory) in programs.items():
        budget = retape.torch.recompute(memory=memory)
        for said, run in (("plain", program.loss), (memory, budget(program.loss))):
            leaves = program.parameters
            without = lambda r=run, v=leaves: torch.autograd.grad(r(), v)  # noqa: E731
            for _ in range(3):  # plans of the budget are found in the first runs
                watched(run), without()
            yield f"{name}, {said}", (partial(watched, run), without)


ENGINES: dict[str, tuple[Callable[[], Iterator[tuple[str, Pair]]], Clock]] = {
    "driver": (driver, time.process_time),
    "jax": (in_jax, time.perf_counter),
    "torch": (in_torch, time.process_time),
}


def main() -> None:
    """Print a row for each program."""
    given = asked(__doc__, ENGINES, {"rounds": 1, "names": ["driver"]}, rounds=15)
    columns = "", "ms without", "median of ratios", "ratio of the least"
    for engine in given.names:
        programs, clock = ENGINES[engine]
        table = Table(*columns, title=engine)
        for name, (watched, without) in programs():
            calls = {"watched": watched, "without": without}
            times = in_turn(calls, given.rounds, clock)
            one, base = times["watched"], times["without"]
            table.row(name, 1e3 * base.least, one.over(base), one.least / base.least)


if __name__ == "__main__":
    main()

"""What watching a gradient's health costs in `retape.adjoint`, in turn.

    python benchmarks/driver/health.py [ROUNDS]

The same call with `health=True` and without: ratios within a round, their median, and
the ratio of the least times, since neighbours on the machine slow both.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import retape

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.with_and_without import with_and_without  # noqa: E402


def roll_step(x: Any, k: int) -> Any:
    """A step of upwind advection with a reaction."""
    return x + 0.1 * (np.roll(x, 1) - x) - 1e-3 * np.sin(x)


def roll_adjoint(x: Any, k: int, g: Any) -> Any:
    """Its adjoint."""
    return g + 0.1 * (np.roll(g, -1) - g) - 1e-3 * np.cos(x) * g


MATRIX = np.linalg.qr(np.random.default_rng(0).normal(size=(256, 256)))[0]


def recurrent_step(x: Any, k: int) -> Any:
    """A product with a matrix."""
    return np.tanh(MATRIX @ x + 0.1)


def recurrent_adjoint(x: Any, k: int, g: Any) -> Any:
    """Its adjoint."""
    return MATRIX.T @ (g * (1 - np.tanh(MATRIX @ x + 0.1) ** 2))


def parts_step(x: Any, k: int) -> Any:
    """Three parts of a state, with little to do."""
    return {"a": np.sin(x["a"]), "b": x["b"] * 0.9, "c": x["c"] + 1.0}


def parts_adjoint(x: Any, k: int, g: Any) -> Any:
    """Its adjoint."""
    return {"a": np.cos(x["a"]) * g["a"], "b": g["b"] * 0.9, "c": g["c"] * 1.0}


def number_step(x: float, k: int) -> float:
    """A number of Python's: the least that a step can be."""
    return x * 0.999 + 0.001


def number_adjoint(x: float, k: int, g: float) -> float:
    """Its adjoint."""
    return g * 0.999


def line(size: int) -> Any:
    """A field."""
    return np.linspace(0.0, 1.0, size)


PARTS = {"a": np.ones(50), "b": np.ones(50), "c": 1.0}

PROGRAMS = {
    "10 numbers, 2,000 steps": (roll_step, roll_adjoint, line(10), 2000),
    "1,000 numbers, 2,000 steps": (roll_step, roll_adjoint, line(1000), 2000),
    "100,000 numbers, 100 steps": (roll_step, roll_adjoint, line(100_000), 100),
    "matrix of 256, 1,000 steps": (recurrent_step, recurrent_adjoint, line(256), 1000),
    "three small parts, 3,000 steps": (parts_step, parts_adjoint, PARTS, 3000),
    "a float, 20,000 steps": (number_step, number_adjoint, 0.5, 20_000),
}


def seconds(program: Any, watch: bool) -> float:
    """One call."""
    step, adjoint, x0, steps = program
    began = time.process_time()
    retape.adjoint(
        step,
        adjoint,
        x0,
        seed=lambda x: x,
        steps=steps,
        plan=retape.fixed_space(snapshots=10),
        health=watch,
    )
    return time.process_time() - began


def main(rounds: int) -> None:
    """Print a line for each program."""
    for name, program in PROGRAMS.items():
        said = with_and_without(partial(seconds, program), rounds)
        print(f"{name:30} {said}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)

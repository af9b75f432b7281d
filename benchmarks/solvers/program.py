"""A program of another package's, as the table over simulators takes it."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import retape

Function = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Program:
    """A row.

    Attributes:
        name: Of the package, and the program.
        fun: From an array to a number.
        point: The array.
        lines: What a user writes.
        gradient: Ours, if it is not `retape.jax.grad(fun, plan=plan)`.
        plan: The plan.
        forward: The same program, if `fun` has no forward mode.
    """

    name: str
    fun: Function
    point: Any
    lines: int = 1
    gradient: Function | None = None
    plan: Any = retape.fixed_space(snapshots=10)
    forward: Function | None = None


def quiet() -> Any:
    """What is printed inside is not shown."""
    return contextlib.redirect_stdout(io.StringIO())

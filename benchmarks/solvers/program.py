"""A program of another package's, as the table over simulators takes it."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

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


def over(steps: int, step: Function, state: Any) -> Any:
    """The state after so many steps of JAX's own scan."""
    body = lambda state, _: (step(state), None)  # noqa: E731
    return jax.lax.scan(body, state, None, length=steps)[0]


def quiet() -> Any:
    """What is printed inside is not shown."""
    return contextlib.redirect_stdout(io.StringIO())

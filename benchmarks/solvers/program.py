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


@dataclass(frozen=True, slots=True)
class Rollout:
    """Many equal steps, of which a program of any length is made.

    Attributes:
        point: What the gradient is taken by.
        start: From it to the first state.
        step: From a state to the next.
        loss: From the last state to a number.
    """

    point: Any
    start: Function
    step: Function
    loss: Function

    def over(self, steps: int) -> Function:
        """A scan over so many steps."""
        return lambda point: self.loss(self._scan(self.start(point), steps))

    def in_blocks(self, blocks: int, length: int) -> Function:
        """What is written by hand: a scan over blocks, each under `jax.checkpoint`."""
        import jax

        @jax.checkpoint
        def block(state: Any, _: Any) -> Any:
            return self._scan(state, length), None

        def run(point: Any) -> Any:
            last, _ = jax.lax.scan(block, self.start(point), None, length=blocks)
            return self.loss(last)

        return run

    def _scan(self, state: Any, steps: int) -> Any:
        import jax

        body = lambda state, _: (self.step(state), None)  # noqa: E731
        return jax.lax.scan(body, state, None, length=steps)[0]


def quiet() -> Any:
    """What is printed inside is not shown."""
    return contextlib.redirect_stdout(io.StringIO())

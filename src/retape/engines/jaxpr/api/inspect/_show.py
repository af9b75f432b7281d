"""Show what each pass makes of a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jax.extend import core

from retape.engines.jaxpr._pipeline import compile_program
from retape.engines.jaxpr.api._gradient_problem import problem_of_call
from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.codegen._pretty import pretty_layout, pretty_tape
from retape.engines.jaxpr.ir._ir import Program
from retape.engines.jaxpr.ir._pretty import pretty
from retape.engines.jaxpr.sizing._choose_settings import compile_for_plan, default_plan
from retape.plan._base import Plan

_SAME = "(as before)"


def show(
    fun: Callable[..., Any],
    *args: Any,
    plan: Plan | None = None,
    argnums: int | Sequence[int] = 0,
    **kwargs: Any,
) -> str:
    """Show a function before and after each pass of the compiler, as text.

    Nothing is run; the function is traced and taken apart as
    `retape.jax.grad(fun, argnums, plan=plan)` would. It is for those who want to know
    why a program takes the memory that it takes, and for those who work on a pass.

    Args:
        fun: A function that returns a scalar.
        *args: Its arguments (or `jax.ShapeDtypeStruct`s of them).
        plan: As for `retape.jax.grad`. A budget may split blocks.
        argnums: As for `retape.jax.grad`.
        **kwargs: Keyword arguments for `fun`.

    Returns:
        For each pass its name and what came out of it: a jaxpr in JAX's own text;
        blocks, in which `a: f32[4]*` is a variable with its type, a star says that a
        derivative flows through, and `-> 2 or 1 by g` that block 2 or block 1 is next,
        by the truth of `g`; the places of variables; and what each block tapes.

    Raises:
        PlanError: If the plan needs the number of steps and it is not known.
        BudgetError: If a budget is below the least possible, which is named.

    Examples:
        >>> import jax, jax.numpy as jnp, retape.jax
        >>> def halve(x):
        ...     return jax.lax.while_loop(lambda x: x > 1, lambda x: 0.5 * x, x)
        >>> text = retape.jax.show(halve, jnp.float32(9))
        >>> start = text.index("== lower_jaxpr")
        >>> print(text[start : text.index("==", start + 2)].rstrip())
        == lower_jaxpr
        program(a: f32[]*) -> c
          block 0:
            b: bool[] = gt a 1.0
            c: f32[]* <- a
            -> 2 or 1 by b
          loop:
            block 1:
              d: f32[]* = mul 0.5 c
              e: bool[] = gt d 1.0
              c <- d
              -> 2 or 1 by e
          block 2:
            end
    """
    problem = problem_of_call(fun, plan, args, kwargs, argnums)
    made: list[tuple[Compiled, str]] = []

    def make(*given: Any, **options: Any) -> Compiled:
        listing = _Listing(problem.jaxpr)
        compiled = compile_program(*given, **options, watch=listing)
        made.append((compiled, listing.text()))
        return compiled

    plan = plan or default_plan()
    chosen, _ = compile_for_plan(plan, problem.jaxpr, problem.active, make)
    return next(text for compiled, text in made if compiled is chosen)


class _Listing:
    """Notes what came out of each pass, as text."""

    def __init__(self, jaxpr: core.ClosedJaxpr) -> None:
        self.parts = ["== traced", str(jaxpr)]
        self.last = str(jaxpr)

    def __call__(self, name: str, output: Any) -> None:
        text = _output_text(output)
        self.parts += [f"== {name}", _SAME if text == self.last else text]
        self.last = text

    def text(self) -> str:
        return "\n".join(self.parts)


def _output_text(output: Any) -> str:
    match output:
        case core.ClosedJaxpr():
            return str(output)
        case Program():
            return pretty(output)
        case (Program() as program, layout):
            return pretty_layout(program, layout)
        case _ if all(hasattr(v, "halves") for v in output.values()):
            return pretty_tape(output)
        case _:
            return "\n".join(f"block {c.number}: {c.jaxpr}" for c in output.values())

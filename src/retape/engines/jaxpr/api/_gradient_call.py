"""The gradient that a call asks for, without running it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from retape.engines.jaxpr.api._gradient_options import (
    GradientOptions,
    check_callable,
    check_plan,
)
from retape.engines.jaxpr.api._gradient_problem import GradientProblem, trace_gradient
from retape.engines.jaxpr.api._trace import flatten_call
from retape.plan._base import Plan


def problem_of_call(
    fun: Callable[..., Any],
    plan: Plan | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    argnums: int | Sequence[int],
) -> GradientProblem:
    """The gradient that is asked for, of arguments that may be mere types of arrays."""
    found: list[GradientProblem] = []

    def ask(args: Any, kwargs: Any) -> None:
        found.append(pose_abstract(fun, plan, args, kwargs, argnums))

    _with_arrays(ask, args, kwargs)
    (problem,) = found
    return problem


def _with_arrays(ask: Callable[[Any, Any], None], args: Any, kwargs: Any) -> None:
    """Call with the arguments, in which a tracer stands for each type of an array."""
    leaves, tree = jax.tree.flatten((args, kwargs))
    types = {i: v for i, v in enumerate(leaves) if isinstance(v, jax.ShapeDtypeStruct)}

    def run(arrays: dict[int, Any]) -> None:
        ask(*tree.unflatten([arrays.get(i, v) for i, v in enumerate(leaves)]))

    if types:
        jax.eval_shape(run, types)
    else:
        run({})


def pose_abstract(
    fun: Callable[..., Any],
    plan: Plan | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    argnums: int | Sequence[int],
) -> GradientProblem:
    check_callable(fun)
    plan = check_plan(plan)
    wanted = GradientOptions(argnums, False, False, False)
    wanted.check_arguments(args)
    pieces = flatten_call(args, kwargs)
    return trace_gradient(fun, wanted, plan, pieces, pieces.leaves)

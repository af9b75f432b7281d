"""A gradient that is asked for, as a program: traced, checked, with its way back.

`grad`, `explain`, `measure` and the host driver all begin here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core

from retape.engines.jaxpr.analysis._activity import propagate
from retape.engines.jaxpr.api._gradient_options import (
    GradientOptions,
    check_callable,
    check_plan,
    no_gradient,
)
from retape.engines.jaxpr.api._trace import FlatCall, Traced, flatten_call, trace
from retape.engines.jaxpr.jaxprs._avals import (
    as_weak,
    is_inexact,
    spread,
    varying,
    zeros_as,
)
from retape.engines.jaxpr.jaxprs._provenance import Flags
from retape.engines.jaxpr.primitives._aux_output import aux_output, without_aside
from retape.plan._base import Plan


@dataclass(frozen=True, slots=True, eq=False)
class GradientProblem:
    """`(value, *aux) = jaxpr(*values)`; wanted are gradients by the active values."""

    jaxpr: core.ClosedJaxpr
    values: tuple[Any, ...]
    active: Flags
    traced: Traced
    """The call, whose result is `(value, aux)`."""
    wanted: GradientOptions
    pieces: FlatCall
    constants: int
    """How many of the values are constants of the program, in front of the leaves."""

    def act(self) -> None:
        """Let the side effects happen, once."""
        self.traced.act(self.values[self.constants :])

    @property
    def has_derivative(self) -> bool:
        """Tell whether the value depends on the arguments at all."""
        return propagate(self.jaxpr, self.active)[0]

    def one(self) -> Any:
        """The seed of the sweep."""
        aval = self.jaxpr.out_avals[0]
        return spread(jnp.ones((), aval.dtype), varying(aval))

    def still(self) -> tuple[list[Any], list[Any]]:
        """Outputs and gradients of a program that does not move."""
        outs = core.jaxpr_as_fun(without_aside(self.jaxpr))(*self.values)
        return outs, [
            zeros_as(v) for v, a in zip(self.values, self.active, strict=True) if a
        ]

    def result(self, outs: Sequence[Any], found: Sequence[Any]) -> tuple[Any, Any, Any]:
        """`(value, aux, gradient)` as the user sees them."""
        value, aux = self.traced.result(outs)
        leaves = self.values[self.constants :]
        active = self.active[self.constants :]
        by = [v for v, a in zip(leaves, active, strict=True) if a]
        given = iter(as_weak(found, map(jax.typeof, by)))
        parts = [next(given) if a else None for a in active]
        args, _ = self.pieces.arguments(leaves)
        owners = self.pieces.owners()
        gradients = []
        for number in self.wanted.numbers(len(args)):
            mine = [
                no_gradient(v) if p is None else p
                for v, p, o in zip(leaves, parts, owners, strict=True)
                if o == number
            ]
            tree = jax.tree_util.tree_structure(args[number])
            gradients.append(jax.tree_util.tree_unflatten(tree, mine))
        alone = self.wanted.alone
        return value, aux, gradients[0] if alone else tuple(gradients)


def trace_gradient(
    fun: Callable[..., Any],
    wanted: GradientOptions,
    plan: Plan | None,
    pieces: FlatCall,
    leaves: Sequence[Any],
) -> GradientProblem:
    """Trace a function for the gradient that is wanted of it."""

    @functools.wraps(fun)
    def scalar(*args: Any, **kwargs: Any) -> Any:
        out = fun(*args, **kwargs)
        value, aux = wanted.split(out)
        wanted.check_value(value)
        return value, aux_output(aux)

    pieces = pieces.with_leaves(leaves)
    traced = trace(scalar, pieces, plan)
    program, constants = traced.program, len(traced.consts)
    numbers = wanted.numbers(pieces.positional())
    active = tuple(
        owner in numbers and is_inexact(aval)
        for owner, aval in zip(
            pieces.owners(), program.in_avals[constants:], strict=True
        )
    )
    return GradientProblem(
        jaxpr=program,
        values=(*traced.consts, *leaves),
        active=(False,) * constants + active,
        traced=traced,
        wanted=wanted,
        pieces=pieces,
        constants=constants,
    )


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

"""Differentiate the iterations of a solver, not the equation that they solve."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import equinox.internal as eqxi
import optimistix

from retape.equinox._filtered import filter_checkpointed
from retape.plan._base import Plan


class RetapeAdjoint(optimistix.AbstractAdjoint):
    """Differentiate the iterates of a solver, in the memory of a plan.

    The gradient is that of `optimistix.RecursiveCheckpointAdjoint`; forward mode and
    derivatives of any order work, too. For a converged solution
    `optimistix.ImplicitAdjoint`, the default, needs less of everything. This one is for
    an iteration that is stopped early, whose result depends on where it began, or whose
    Jacobian is singular at the solution.

    Attributes:
        plan: How much memory to use, for example `retape.within("100 MB")` or
            `retape.fixed_space(snapshots=20)`. By default `retape.logarithmic()`.

    Raises:
        BudgetError: When differentiating, if a budget is below the least possible.

    Examples:
        >>> import jax, optimistix, retape.optimistix
        >>> def cosine_fixed_point(a):
        ...     return optimistix.fixed_point(
        ...         lambda y, a: a * jax.numpy.cos(y),
        ...         optimistix.FixedPointIteration(rtol=1e-5, atol=1e-5), 0.5, a,
        ...         adjoint=retape.optimistix.RetapeAdjoint()).value
        >>> print(f"{jax.grad(cosine_fixed_point)(1.0):.3f}")
        0.442
    """

    plan: Plan | None = None

    def apply(
        self,
        primal_fn: Callable[..., Any],
        rewrite_fn: Callable[..., Any],
        inputs: Any,
        tags: frozenset[object],
    ) -> Any:
        """Iterate, as Optimistix calls it."""
        del rewrite_fn, tags
        loop = functools.partial(eqxi.while_loop, kind="lax")

        def iterate(inputs: Any) -> Any:
            return primal_fn((*inputs, loop))

        return filter_checkpointed(iterate, self.plan, inputs)

"""Discretise, then optimise: diffrax's own loop, reversed by divide and conquer.

The arrays that a solve saves into are made where the engine sees what they hold.
diffrax makes them before it calls an adjoint, full of one number. An engine that is
handed an array cannot know that, and would keep all of it in each snapshot. So they are
made again inside of what is differentiated, where each is kept once, beside the
snapshots: 1000 saved times of two numbers are 16 kB in all, and not in every snapshot.
"""

from __future__ import annotations

from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp

from retape._errors import UnsupportedError
from retape.equinox._filtered import filter_checkpointed
from retape.plan._base import Plan


def fill_here(state: Any) -> Any:
    """A solve's first state, with its buffers filled again, with infinity as before."""

    def full(array: Any) -> Any:
        return jnp.full(array.shape, jnp.inf, array.dtype)

    def buffers(state: Any) -> list[Any]:
        saved = [(s.ts, s.ys) for s in _saved(state)]
        return jax.tree.leaves((saved, state.dense_ts, state.dense_infos))

    return eqx.tree_at(buffers, state, replace_fn=full)


def with_unused_times(final: Any, first: Any) -> Any:
    """The last state, with the times that were not used as they were in the first.

    Of a solve backwards in time these are negative infinity.
    """
    state, statistics = final

    def times(state: Any) -> list[Any]:
        return [s.ts for s in _saved(state)]

    pairs = zip(times(state), times(first), strict=True)
    restored = [jnp.where(jnp.isinf(after), before, after) for after, before in pairs]
    return eqx.tree_at(times, state, restored), statistics


def _saved(state: Any) -> list[Any]:
    """The values that each part of a `SaveAt` has saved."""

    def is_one(node: Any) -> bool:
        return hasattr(node, "ts") and hasattr(node, "ys")

    nodes = jax.tree.leaves(state.save_state, is_leaf=is_one)
    return [node for node in nodes if is_one(node)]


class RetapeAdjoint(diffrax.AbstractAdjoint):
    """Differentiate the numerical solution itself, in the memory of a plan.

    The gradient is that of `diffrax.RecursiveCheckpointAdjoint`. Beyond it: memory is
    given in bytes, `max_steps` may be `None`, and forward mode, Hessians and every
    other nesting of `jax.jvp`, `jax.grad` and `jax.vmap` work.

    Attributes:
        plan: How much memory to use, for example `retape.within("100 MB")` or
            `retape.fixed_space(snapshots=20)`. By default `retape.logarithmic()`.

    Raises:
        UnsupportedError: When solving, if the terms contain a
            `diffrax.UnsafeBrownianPath`, whose values cannot be computed again.
        BudgetError: When differentiating, if a budget is below the least possible.

    Examples:
        >>> import diffrax, jax, jax.numpy as jnp, retape, retape.diffrax
        >>> def decayed(rate):
        ...     solution = diffrax.diffeqsolve(
        ...         diffrax.ODETerm(lambda t, y, rate: -rate * y),
        ...         diffrax.Tsit5(), t0=0, t1=1, dt0=0.1, y0=jnp.array(1.0), args=rate,
        ...         stepsize_controller=diffrax.PIDController(rtol=1e-6, atol=1e-6),
        ...         max_steps=None,
        ...         adjoint=retape.diffrax.RetapeAdjoint(
        ...             plan=retape.fixed_space(snapshots=4)))
        ...     return solution.ys[0]
        >>> print(f"{jax.grad(decayed)(0.5):.4f} {jax.hessian(decayed)(0.5):.4f}")
        -0.6065 0.6065
    """

    plan: Plan | None = None

    def loop(self, *, terms: Any, init_state: Any, **kwargs: Any) -> Any:
        """Solve, as diffrax calls it."""
        _refuse_unsafe_paths(terms)
        # Forward mode's loops are JAX's own `while_loop` and `scan`: all derivatives.
        forward = diffrax.ForwardMode()

        def solve(terms: Any, init_state: Any, kwargs: dict[str, Any]) -> Any:
            init_state = fill_here(init_state)
            return forward.loop(terms=terms, init_state=init_state, **kwargs)

        final = filter_checkpointed(solve, self.plan, terms, init_state, kwargs)
        return with_unused_times(final, init_state)


def _refuse_unsafe_paths(terms: Any) -> None:
    def unsafe(node: Any) -> bool:
        return isinstance(node, diffrax.UnsafeBrownianPath)

    if any(map(unsafe, jax.tree.leaves(terms, is_leaf=unsafe))):
        raise UnsupportedError(
            "The terms contain a `diffrax.UnsafeBrownianPath`, which draws new numbers "
            "each time that it is evaluated, and `RetapeAdjoint` evaluates steps more "
            "than once. Use `diffrax.VirtualBrownianTree`, or "
            "`adjoint=diffrax.ForwardMode()`."
        )

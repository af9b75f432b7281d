"""The arrays that a solve saves into, made where the engine sees what they hold.

diffrax makes them before it calls an adjoint, full of one number. An engine that is
handed an array cannot know that, and would keep all of it in each snapshot. So they are
made again inside of what is differentiated, where each is kept once, beside the
snapshots: 1000 saved times of two numbers are 16 kB in all, and not in every snapshot.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp


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

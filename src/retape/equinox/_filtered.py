"""`checkpointed` for functions of any objects, as Equinox's filters treat them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx

import retape.jax
from retape.plan._base import Plan


def filter_checkpointed(fun: Callable[..., Any], plan: Plan | None, *args: Any) -> Any:
    """Call a function, whose reverse mode is then divide and conquer.

    Args:
        fun: A function of pytrees of anything, that returns such a pytree.
        plan: How much memory to use.
        *args: Its arguments. Only arrays are traced: numbers, functions and everything
            else are seen by `fun` as they are.

    Returns:
        The result of `fun`; what is no array in it is as `fun` made it.
    """
    arrays, fixed = eqx.partition(args, eqx.is_array)
    beside: list[Any] = []

    def traced(arrays: Any) -> Any:
        out = fun(*eqx.combine(arrays, fixed))
        found, rest = eqx.partition(out, eqx.is_array)
        # Tracing may take place twice; what is no array is the same each time.
        beside[:] = [rest]
        return found

    out = retape.jax.checkpointed(traced, plan=plan)(arrays)
    return eqx.combine(out, *beside)

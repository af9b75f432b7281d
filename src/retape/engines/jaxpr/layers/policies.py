"""Policies: what a marked function keeps, and where it is cut.

`retape.jax.checkpoint(f, policy=...)` and the loops take any of these, and any of
`jax.checkpoint_policies`. `within` is `retape.within`, a budget that is a plan, too.

Examples:
    >>> import jax, jax.numpy as jnp, retape.jax
    >>> def loss(x):
    ...     for _ in range(8):
    ...         x = jnp.sin(jnp.cumsum(x))
    ...     return x.sum()
    >>> marked = retape.jax.checkpoint(loss, policy=retape.within("1 MB"))
    >>> program = jax.jit(jax.grad(marked)).lower(jnp.ones(1000)).compile()
    >>> program.memory_analysis().temp_size_in_bytes <= 1_000_000
    True
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from retape._errors import PlanError
from retape.engines.jaxpr.layers.remat._policy import (
    Names,
    Policy,
    Strategy,
    saves_products,
)
from retape.engines.jaxpr.layers.strategies._cutting import EveryN, Sqrt
from retape.plan._constructors import within

__all__ = ["every_n", "names", "selective", "sqrt", "within"]


def every_n(n: int) -> Strategy:
    """Cut the function after every n operations; each piece is run again in reverse.

    Args:
        n: Operations in a piece, in topological order, at least 1.

    Raises:
        PlanError: If n is less than 1.
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise PlanError(
            f"`every_n(n={n!r})` is not valid: operations are counted. Pass a whole "
            "number, at least 1."
        )
    return EveryN(n)


def sqrt() -> Strategy:
    """Cut the function where that takes the least bytes; each piece is run again.

    For a chain of n equal layers these are about sqrt(n) pieces (Chen et al. 2016); for
    any other graph the bytes that cross a cut, and those inside a piece, decide.
    """
    return Sqrt()


def selective() -> Policy:
    """Save what is dear to compute and cheap to hold; run everything else again.

    Matrix products with weights (those without batch dimensions), and convolutions, are
    saved; softmax, dropout, norms and the scores of an attention are computed again.
    """
    return saves_products


def names(*, save: Iterable[str] = (), offload: Iterable[str] = ()) -> Policy:
    """Save, or move to the host's memory, what `checkpoint_name` has given a name.

    A `RetapeWarning` says which names no value of the marked function has, and that
    nothing is moved on the CPU, where the host's memory is the device's.

    Args:
        save: Names of values that are kept.
        offload: Names of values that wait in the host's memory.

    Raises:
        PlanError: If a name is in both, or what is passed is not a list of names.
    """
    save, offload = _names("save", save), _names("offload", offload)
    both = sorted({*save} & {*offload})
    if both:
        raise PlanError(
            f"{both} cannot be both saved and offloaded. Leave each name in one list."
        )
    return Names(tuple(save), tuple(offload))


def _names(option: str, names: Any) -> list[str]:
    found = list(names) if isinstance(names, Iterable) else None
    if found is None or isinstance(names, str) or not _are_texts(found):
        raise PlanError(
            f"`names({option}={names!r})` is not a list of names. Pass the names that "
            'were given by `checkpoint_name`, such as `["scores"]`.'
        )
    return found


def _are_texts(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)

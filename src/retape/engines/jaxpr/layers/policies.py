"""Policies: what a marked function keeps, and where it is cut.

`retape.jax.checkpoint(f, policy=...)` and the loops take any of these, and any of
`jax.checkpoint_policies`.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from numbers import Real
from typing import Any

import jax

from ...._bytes import parse_bytes
from ...._errors import PlanError
from ._options import Policy
from ._strategies import ByDepth, EveryN, Sqrt, Strategy
from ._within import Within

__all__ = ["by_depth", "every_n", "names", "selective", "sqrt", "within"]


def every_n(n: int) -> Strategy:
    """Cut the function after every n operations; each piece is run again in reverse.

    Args:
        n: Operations in a piece, in topological order, at least 1.

    Raises:
        PlanError: If n is less than 1.
    """
    _check("every_n", "n", n, 1)
    return EveryN(n)


def by_depth(depth: int) -> Strategy:
    """Store what lies at most `depth` operations from the inputs; re-run the rest.

    The deeper part is cut as by `sqrt`.

    Args:
        depth: The longest way, in operations, from an input to one that is stored; 0
            stores nothing.

    Raises:
        PlanError: If `depth` is negative.
    """
    _check("by_depth", "depth", depth, 0)
    return ByDepth(depth)


def sqrt() -> Strategy:
    """Cut the function where that takes the least bytes; each piece is run again.

    For a chain of n equal layers these are about sqrt(n) pieces (Chen et al. 2016); for
    any other graph the bytes that cross a cut, and those inside a piece, decide.
    """
    return Sqrt()


def selective(flops_per_byte: float | None = None) -> Policy:
    """Save what is dear to compute and cheap to hold; run everything else again.

    Matrix products with weights, and convolutions, are saved; softmax, dropout, norms
    and the scores of an attention are computed again.

    Args:
        flops_per_byte: Save a product if each byte of it takes at least this many
            floating-point operations. By default products without batch dimensions are
            saved: those with weights.

    Raises:
        PlanError: If `flops_per_byte` is no number, or negative.
    """
    if flops_per_byte is None:
        return _weights
    if not isinstance(flops_per_byte, Real) or not flops_per_byte >= 0:
        raise PlanError(
            f"`selective(flops_per_byte={flops_per_byte!r})` cannot be: a product of "
            "n terms takes 2 n operations for each number. Pass a number, such as 100, "
            "or nothing, to save the products with weights."
        )
    least = flops_per_byte

    def policy(prim: Any, *avals: Any, **params: Any) -> bool:
        found = _intensity(prim, avals, params)
        return found is not None and found >= least

    return policy


def _weights(prim: Any, *avals: Any, **params: Any) -> bool:
    if prim.name == "dot_general":
        return not any(params["dimension_numbers"][1])
    return prim.name == "conv_general_dilated"


def _intensity(prim: Any, avals: Any, params: dict[str, Any]) -> float | None:
    """Floating-point operations per byte of a product; `None` if it is none."""
    if prim.name == "dot_general":
        contracted = params["dimension_numbers"][0][0]
        terms = prod(avals[0].shape[d] for d in contracted)
    elif prim.name == "conv_general_dilated":
        spec = params["dimension_numbers"].rhs_spec
        terms = prod(avals[1].shape) // max(1, avals[1].shape[spec[0]])
    else:
        return None
    return 2 * terms / avals[0].dtype.itemsize


def names(*, save: Iterable[str] = (), offload: Iterable[str] = ()) -> Policy:
    """Save, or move to the host's memory, what `checkpoint_name` has given a name.

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
    if not offload:
        return jax.checkpoint_policies.save_only_these_names(*save)
    return jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=save,
        names_which_can_be_offloaded=offload,
        offload_src="device",
        offload_dst="pinned_host",
    )


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


def within(budget: int | str) -> Strategy:
    """Run as little again as a number of bytes allows.

    Pieces of the function are stored, run again but for their matrix products, or run
    again whole. A dynamic programme finds the cheapest choice for each of a row of
    predicted peaks. Their gradients are compiled, by bisection, and the cheapest found
    whose temporaries keep to the budget by the compiler's own figure is taken: that of
    `jax.jit(jax.grad(f))` and of `jax.value_and_grad`, by the arguments that the
    gradient is taken by. A larger budget never leads to more work.

    The choice is made when a derivative is taken, which takes some compilations (about
    ten of each function; the same function is not searched again). Under an outer
    `vmap`, or as a part of a larger program, the figure is that of the function alone.

    Args:
        budget: Bytes of temporaries of the gradient, or a text such as "2 GiB".
            Arguments, gradients and the value are not counted.

    Raises:
        PlanError: If the budget is no number of bytes.
        BudgetError: When the derivative is taken, if nothing that was compiled meets
            the budget; the least that would do is named.

    Example:
        >>> import jax, jax.numpy as jnp, retape.jax
        >>> def loss(x):
        ...     for _ in range(8):
        ...         x = jnp.sin(jnp.cumsum(x))
        ...     return x.sum()
        >>> policy = retape.jax.policies.within("1 MB")
        >>> slope = jax.jit(jax.grad(retape.jax.checkpoint(loss, policy=policy)))
        >>> program = slope.lower(jnp.ones(1000)).compile()
        >>> program.memory_analysis().temp_size_in_bytes <= 1_000_000
        True
    """
    return Within(parse_bytes(budget))


def _check(name: str, option: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise PlanError(
            f"`{name}({option}={value!r})` cannot be: operations are counted. Pass a "
            f"whole number, at least {least}."
        )

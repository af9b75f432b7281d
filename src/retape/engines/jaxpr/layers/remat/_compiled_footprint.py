"""Memory of a program as its compiler reports it; nothing is run or allocated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from retape._errors import UnsupportedError
from retape.engines.jaxpr.jaxprs._avals import struct
from retape.engines.jaxpr.jaxprs._evaluate import vjp_by
from retape.engines.jaxpr.jaxprs._target import platform
from retape.engines.jaxpr.xla._memory_report import MemoryReport as MemoryReport
from retape.engines.jaxpr.xla._standalone import memory_of


def footprint(
    fun: Callable[..., Any],
    *args: Any,
    names: frozenset[Any] = frozenset(),
    donated: Sequence[int] = (),
) -> MemoryReport:
    """Compile a function for its arguments' types, and ask what each device needs.

    Args:
        fun: The function.
        *args: Its arguments, or their types: with shardings, where they have some.
        names: Axes that collectives in it speak of.
        donated: Positions of arguments whose place results may take.
    """
    owners = [i for i, arg in enumerate(args) for _ in jax.tree.leaves(arg)]
    given = [at for at, i in enumerate(owners) if i in donated]
    leaves, tree = jax.tree.flatten(args)
    flat = lambda *leaves: fun(*jax.tree.unflatten(tree, leaves))  # noqa: E731
    structs = list(map(placed_struct, leaves))
    memory = memory_of(flat, structs, names, donated=given)
    if memory is None:
        raise UnsupportedError(
            "this platform's compiler does not tell what a program takes. Compile for "
            "the CPU (`jax.default_device`), or choose `levels` or a plan yourself."
        )
    return memory


def gradients(
    fun: Callable[..., Sequence[Any]], structs: Sequence[Any], moving: Sequence[bool]
) -> tuple[list[Callable[..., Any]], tuple[Any, ...]]:
    """Programs for the derivative by the moving inputs, and their arguments' types.

    Of a scalar the gradient with the value, and on an accelerator without it, too: on
    the CPU both take the same (`_deferred_choice.run_tied`). Of anything else the
    value, with cotangents for any that come.
    """
    which = [i for i, m in enumerate(moving) if m]

    def chosen(values: Sequence[Any]) -> list[Any]:
        return [out for out in fun(values) if _has_gradient(out)]

    def pulled(values: Sequence[Any]) -> Any:
        return vjp_by(lambda *every: chosen(every), values, which)

    def both(values: Sequence[Any], seeds: Any) -> Any:
        outs, pull = pulled(values)
        return outs, pull(seeds)

    def valued(values: Sequence[Any]) -> Any:
        outs, pull = pulled(values)
        return outs, pull([jnp.ones_like(outs[0])])

    outs = jax.eval_shape(chosen, list(structs))
    if len(outs) == 1 and not outs[0].shape:
        alone = [] if platform() == "cpu" else [lambda v: valued(v)[1]]
        return [*alone, valued], (list(structs),)
    return [both], (list(structs), outs)


def _has_gradient(value: Any) -> bool:
    return jax.dtypes.issubdtype(value.dtype, jnp.inexact)


def placed_struct(leaf: Any) -> Any:
    """The type of an array, and where it is."""
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    aval = jax.typeof(leaf)
    if isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer) and leaf.committed:
        return jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=leaf.sharding)
    return struct(aval)

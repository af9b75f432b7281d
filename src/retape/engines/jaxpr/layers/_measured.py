"""What the compiler says that a program takes. Nothing is run, nothing allocated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from ...._errors import UnsupportedError


class Footprint(NamedTuple):
    """What a compiled program takes, in bytes.

    Attributes:
        temp: Temporaries, at their most.
        arguments: What it is given.
        results: What it returns, less what takes the place of an argument.
    """

    temp: int
    arguments: int
    results: int

    @property
    def total(self) -> int:
        return sum(self)


def footprint(fun: Callable[..., Any], *args: Any) -> Footprint:
    """Compile a function for its arguments' types, and ask."""
    structs = jax.tree.map(_struct, args)
    memory = jax.jit(fun).lower(*structs).compile().memory_analysis()
    if memory is None:
        raise UnsupportedError(
            "this platform's compiler does not tell what a program takes. Compile for "
            "the CPU (`jax.default_device`), or choose `levels` or a plan yourself."
        )
    results = memory.output_size_in_bytes - memory.alias_size_in_bytes
    return Footprint(memory.temp_size_in_bytes, memory.argument_size_in_bytes, results)


def reverse_footprint(
    fun: Callable[..., Sequence[Any]], structs: Sequence[Any]
) -> Footprint:
    """The footprint of a function's value and of all of its cotangents."""
    moving = [i for i, s in enumerate(structs) if _moves(s)]

    def both(values: Sequence[Any], seeds: Any) -> Any:
        def along(*chosen: Any) -> list[Any]:
            full = list(values)
            for i, v in zip(moving, chosen, strict=True):
                full[i] = v
            return [out for out in fun(full) if _moves(out)]

        outs, pull = jax.vjp(along, *(values[i] for i in moving))
        return outs, pull(seeds)

    outs = jax.eval_shape(lambda v: [o for o in fun(v) if _moves(o)], list(structs))
    return footprint(both, list(structs), outs)


def _moves(value: Any) -> bool:
    return jax.dtypes.issubdtype(value.dtype, jax.numpy.inexact)


def _struct(leaf: Any) -> Any:
    aval = jax.typeof(leaf) if not isinstance(leaf, jax.ShapeDtypeStruct) else leaf
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)

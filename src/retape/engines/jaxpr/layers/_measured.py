"""What the compiler says that a program takes. Nothing is run, nothing allocated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax


class Footprint(NamedTuple):
    """Attributes:
    temp_bytes: Most bytes of temporaries at once.
    flops: Floating-point operations; loops' bodies are counted once.
    """

    temp_bytes: int
    flops: float


def footprint(fun: Callable[..., Any], *args: Any) -> Footprint:
    """Compile a function for its arguments' types, and ask."""
    structs = jax.tree.map(_struct, args)
    compiled = jax.jit(fun).lower(*structs).compile()
    memory = compiled.memory_analysis()
    temp = 0 if memory is None else memory.temp_size_in_bytes
    costs = compiled.cost_analysis() or {}
    return Footprint(temp, float(costs.get("flops", 0.0)))


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

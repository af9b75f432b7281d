"""`take(whole) -> (whole, part)`: a slice whose cotangent is put in its place at once.

The derivative of many slices of one array is, in JAX, a sum of arrays that are padded
with zeros. XLA makes the sum at the end, from all cotangents of the slices, which wait
beside it: a second copy of the gradient of a stack of weights. Here the slices are
taken one after the other, each from the whole that the one before it handed on, so that
their cotangents are added in place one after the other, as they come.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core
from jax.interpreters import ad, batching, mlir

from retape.engines.jaxpr.calls._rerun import arrived
from retape.engines.jaxpr.jaxprs._evaluate import bind

take_p = core.Primitive("retape_slice")
take_p.multiple_results = True


class InSequence:
    """Binds operations; slices of one array are taken one after the other."""

    def __init__(self) -> None:
        self._now: dict[Any, Any] = {}

    def __call__(self, eqn: Any, values: list[Any]) -> list[Any]:
        """What the operation makes; for `_evaluate.evaluate`."""
        if not _is_plain_slice(eqn):
            return bind(eqn, values)
        (of,) = eqn.invars
        start, limit = eqn.params["start_indices"], eqn.params["limit_indices"]
        self._now[of], part = take_p.bind(
            self._now.get(of, values[0]), start=start, limit=limit
        )
        return [part]


class SlicesBehind:
    """Binds operations; slices are taken no sooner than a value is known.

    XLA's scheduler on the CPU takes all slices of all weights at the start of a
    program, since nothing holds them back.
    """

    def __init__(self, value: Any) -> None:
        self._known = None if value is None else arrived([value])

    def __call__(self, eqn: Any, values: list[Any]) -> list[Any]:
        """What the operation makes; for `_evaluate.evaluate`."""
        params = eqn.params
        if self._known is None or not _is_plain_slice(eqn):
            return bind(eqn, values)
        starts, limits = params["start_indices"], params["limit_indices"]
        sizes = [b - a for a, b in zip(starts, limits, strict=True)]
        zero = jnp.zeros((), "int32")
        at = [lax.select(self._known, zero + a, zero) if a else zero for a in starts]
        return [lax.dynamic_slice(values[0], at, sizes)]


def _is_plain_slice(eqn: Any) -> bool:
    return eqn.primitive.name == "slice" and eqn.params["strides"] is None


def _slice_impl(whole: Any, *, start: Any, limit: Any) -> list[Any]:
    return [whole, lax.slice(whole, start, limit)]


def _slice_avals(whole: Any, *, start: Any, limit: Any) -> list[Any]:
    spec = lax.slice_p.abstract_eval(
        whole, start_indices=start, limit_indices=limit, strides=None
    )
    return [whole, spec[0]]


def _slice_jvp(primals: Sequence[Any], tangents: Sequence[Any], **at: Any) -> Any:
    outs = take_p.bind(*primals, **at)
    (tangent,) = tangents
    if type(tangent) is ad.Zero:
        return outs, [ad.Zero(jax.typeof(out).to_tangent_aval()) for out in outs]
    return outs, take_p.bind(tangent, **at)


def _slice_transpose(
    cotangents: Sequence[Any], whole: Any, *, start: Any, limit: Any
) -> list[Any]:
    onto, part = cotangents
    if type(part) is ad.Zero:
        return [onto]
    if type(onto) is not ad.Zero:
        part = part + lax.slice(onto, start, limit)
    elif _own_mesh(part) != _own_mesh(whole):
        # The array came from outside of a mesh with explicit axes (one of NumPy's, say)
        # and its cotangent is inside, where zeros of its own type are not.
        return [_padded(part, whole.aval.shape, start, limit)]
    return [lax.dynamic_update_slice(ad.instantiate_zeros(onto), part, start)]


def _own_mesh(value: Any) -> Any:
    aval: Any = value.aval if ad.is_undefined_primal(value) else jax.typeof(value)
    return aval.sharding.mesh


def _padded(part: Any, shape: Any, start: Any, limit: Any) -> Any:
    """Zeros of a shape with a part of it written, where that part is."""
    edges = [(a, n - b, 0) for a, b, n in zip(start, limit, shape, strict=True)]
    return lax.pad(part, jnp.zeros((), part.dtype), edges)


def _slice_batch(
    values: Sequence[Any], dims: Sequence[Any], *, start: Any, limit: Any
) -> tuple[list[Any], list[int]]:
    whole = jnp.moveaxis(values[0], dims[0], 0)
    at = {"start": (0, *start), "limit": (whole.shape[0], *limit)}
    return take_p.bind(whole, **at), [0, 0]


take_p.def_impl(_slice_impl)
take_p.def_abstract_eval(_slice_avals)
ad.primitive_jvps[take_p] = _slice_jvp
ad.primitive_transposes[take_p] = _slice_transpose
batching.primitive_batchers[take_p] = _slice_batch
mlir.register_lowering(take_p, mlir.lower_fun(_slice_impl, multiple_results=True))

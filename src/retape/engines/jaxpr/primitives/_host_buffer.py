"""Rows of buffers that wait in the host's memory.

XLA learns where a buffer lives from what is done to it: rows on their way to the host
are marked so, and rows on their way back. In between there may be loops and nothing
else; any other operation would be done by the host, slowly, or refused.

    begin:  buffer = zeros          marked as moving to the host, which XLA leaves out
    stash:  buffer[index] = row     the row marked as moving to the host
    fetch:  row = buffer[index]     the row marked as moving to the device

So a buffer begins with whatever is in the host's memory: what was not stashed must not
be fetched. These are primitives, since JAX itself would make a gather and a scatter of
slices under `vmap`; and since inside another sweep, where the buffer is a register like
any other, they must be taken out again (`on_device`). On the CPU nothing is marked:
there host and device memory are one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend import core
from jax.interpreters import ad, batching, mlir

from retape._errors import PlanError
from retape.engines.jaxpr.jaxprs._avals import in_front, struct
from retape.engines.jaxpr.jaxprs._rewrite import contains, rewrite

begin_p = core.Primitive("retape_host_allocate")
stash_p = core.Primitive("retape_host_store")
fetch_p = core.Primitive("retape_host_load")
moved_p = core.Primitive("retape_host_move")

HOST = "pinned_host"
"""The kind of memory that all of JAX's accelerators can reach."""


def allocate_on_host(buffer: Any) -> Any:
    """A buffer to be, in the host's memory."""
    return begin_p.bind(buffer, axis=0)


def stash(buffer: Any, row: Any, index: Any) -> Any:
    """`buffer` with `buffer[index] = row`, in the host's memory."""
    return stash_p.bind(buffer, row, index, axis=0)


def fetch(buffer: Any, index: Any) -> Any:
    """`buffer[index]` of a buffer in the host's memory."""
    return fetch_p.bind(buffer, index, axis=0)


def can_wait(aval: Any) -> bool:
    """Tell whether a value can wait on the host.

    Numbers do not: a transfer costs more than they take. Nor do random keys, which are
    small too.
    """
    keys = jax.dtypes.issubdtype(aval.dtype, jax.dtypes.extended)
    return bool(aval.shape) and aval.size > 0 and not keys


def on_device(jaxpr: core.ClosedJaxpr) -> core.ClosedJaxpr:
    """The same program with all its buffers on the device."""
    return (
        rewrite(jaxpr, _host_handled, _plainly)
        if contains(jaxpr, _host_handled)
        else jaxpr
    )


def check_on_device(before: core.ClosedJaxpr, after: core.ClosedJaxpr) -> None:
    """Check that no buffer is left on the host."""
    assert after is before or not contains(after, _host_handled), "left on the host"


def check_host_memory() -> None:
    """Refuse a device that does not reach the host's memory.

    Raises:
        PlanError: If it does not.
    """
    device = jax.devices()[0]
    kinds = sorted(memory.kind for memory in device.addressable_memories())
    if HOST not in kinds:
        raise PlanError(
            f"`offload='host'` needs memory of kind '{HOST}', and a device of the "
            f"platform '{device.platform}' reaches {kinds}. Leave `offload` out."
        )


# What they are ------------------------------------------------------------------


def _begun(buffer: Any, axis: int, *, marked: bool) -> Any:
    del axis
    return moved_p.bind(buffer, to_host=True) if marked else buffer


def _stashed(buffer: Any, row: Any, index: Any, axis: int, *, marked: bool) -> Any:
    # Shaped on the device: between the mark and the buffer nothing may happen.
    row = lax.expand_dims(row, (axis,))
    row = moved_p.bind(row, to_host=True) if marked else row
    return lax.dynamic_update_slice_in_dim(
        buffer, row, index, axis, allow_negative_indices=False
    )


def _fetched(buffer: Any, index: Any, axis: int, *, marked: bool) -> Any:
    zero = np.zeros((), index.dtype)
    start = [index if i == axis else zero for i in range(buffer.ndim)]
    sizes = [1 if i == axis else n for i, n in enumerate(buffer.shape)]
    row = lax.dynamic_slice(buffer, start, sizes, allow_negative_indices=False)
    row = moved_p.bind(row, to_host=False) if marked else row
    return lax.squeeze(row, (axis,))


_DONE = {begin_p: (_begun, 1), stash_p: (_stashed, 2), fetch_p: (_fetched, 1)}
"""What each does, and how many arrays it is given, in front of an index."""


def _host_handled(eqn: core.JaxprEqn) -> bool:
    return eqn.primitive in _DONE


def _plainly(eqn: core.JaxprEqn, values: Sequence[Any]) -> list[Any]:
    return [_DONE[eqn.primitive][0](*values, **eqn.params, marked=False)]


def _result(primitive: core.Primitive, *avals: Any, axis: int) -> Any:
    run = partial(_DONE[primitive][0], axis=axis, marked=False)
    return jax.make_jaxpr(run)(*map(struct, avals)).out_avals[0]


def _jvp(
    primitive: core.Primitive,
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    axis: int,
) -> tuple[Any, Any]:
    """Forward mode: what moves is moved alike."""
    out, n = primitive.bind(*primals, axis=axis), _DONE[primitive][1]
    # No zeros are made of nothing: a loop that needs them marks its own rows.
    if all(type(t) is ad.Zero for t in tangents[:n]):
        return out, ad.Zero(jax.typeof(out).to_tangent_aval())
    full = map(ad.instantiate_zeros, tangents[:n])
    return out, primitive.bind(*full, *primals[n:], axis=axis)


def _batch(
    primitive: core.Primitive, values: Sequence[Any], dims: Sequence[Any], *, axis: int
) -> tuple[Any, int]:
    """`vmap`: a row stays a slice, behind the axis of the batch."""
    n = _DONE[primitive][1]
    if any(d is not None for d in dims[n:]):
        raise _differing_places()
    arrays = in_front(values[:n], dims[:n])
    return primitive.bind(*arrays, *values[n:], axis=axis + 1), 0


def _differing_places() -> PlanError:
    return PlanError(
        "`offload='host'` cannot be kept by this gradient under `jax.vmap`: the mapped "
        "runs differ in length, so that each is at another snapshot, and the host's "
        "memory is read and written one snapshot at a time. Map the function and take "
        "the gradient of that, as in `jax.grad(lambda xs: jax.vmap(f)(xs).sum())`, or "
        "leave `offload` out."
    )


# Lowering -------------------------------------------------------------------------


def _annotate(context: Any, value: Any, *, to_host: bool) -> Any:
    """JAX's own annotation of a value that moves."""
    space = jax.memory.Space.Host if to_host else jax.memory.Space.Device
    # JAX leaves them out of programs whose arguments are all on the device.
    module = context.module_context.replace(all_default_mem_kind=False)
    put = mlir.lower_fun(lambda v: jax.device_put(v, space), multiple_results=False)
    return put(context.replace(module_context=module), value)


moved_p.def_impl(lambda value, to_host: value)
moved_p.def_abstract_eval(lambda value, to_host: value)
mlir.register_lowering(moved_p, lambda context, value, to_host: [value])
mlir.register_lowering(moved_p, _annotate, platform="gpu")
mlir.register_lowering(moved_p, _annotate, platform="tpu")

for _p, (_fun, _) in _DONE.items():
    _marked = partial(_fun, marked=True)
    _p.def_impl(_marked)
    _p.def_abstract_eval(partial(_result, _p))
    ad.primitive_jvps[_p] = partial(_jvp, _p)
    batching.primitive_batchers[_p] = partial(_batch, _p)
    mlir.register_lowering(_p, mlir.lower_fun(_marked, multiple_results=False))

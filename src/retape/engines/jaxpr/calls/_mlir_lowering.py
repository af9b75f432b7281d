"""The programs of the primitives, on their way to the compiler."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import jax
from jax.extend import core
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo
from jax.interpreters import mlir

from retape.engines.jaxpr.intake._hijax import expanded
from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.jaxprs._provenance import call_p
from retape.engines.jaxpr.xla._single_kernel import ENABLED, mark_kernels
from retape.plan._base import Plan


def _run_compiled(*values: Any, jaxpr: core.ClosedJaxpr, **_: Any) -> list[Any]:
    return core.jaxpr_as_fun(jaxpr)(*values)


def lower(context: Any, *values: Any, jaxpr: core.ClosedJaxpr, **params: Any) -> Any:
    """Lower the program in place."""
    return _lowered(context, *values, jaxpr=expanded(jaxpr), **params)


def _lowered(context: Any, *values: Any, **params: Any) -> Any:
    """The same, with 64-bit types whatever the user's setting.

    A sweep counts in 64 bits. Some of JAX's lowering rules trace Python code of their
    own, which would otherwise truncate it; 32-bit values stay what they are.
    """
    with jax.enable_x64(True):
        context = _with_wide_sizes(context)
        return mlir.lower_fun(_run_compiled, multiple_results=True)(
            context, *values, **params
        )


def _with_wide_sizes(context: Any) -> Any:
    """The context with symbolic dimensions (`jax.export`) in 64 bits.

    What was lowered outside, where they have 32 bits, must not be called inside.
    """
    if not context.dim_var_values:
        return context
    module = context.module_context.replace(lowering_cache={})
    sizes = list(map(_wide, context.dim_var_values))
    return context.replace(dim_var_values=sizes, module_context=module)


def _wide(size: Any) -> Any:
    """The value of a symbolic dimension in 64 bits, as it is inside."""
    wide = ir.RankedTensorType.get([], ir.IntegerType.get_signless(64))
    return size if size.type == wide else stablehlo.convert(wide, size)


def lower_on_cpu(context: Any, *values: Any, jaxpr: Any, **params: Any) -> Any:
    """The same; what is small runs as one kernel, if there is one device."""
    alone = getattr(context.module_context.axis_context, "num_devices", 0) == 1
    chosen = expanded(jaxpr)
    with jax.enable_x64(True):
        chosen = mark_kernels(chosen) if alone and ENABLED else chosen
    return _lowered(context, *values, jaxpr=chosen, **params)


@cached(256)
def _jitted(jaxpr: core.ClosedJaxpr, plan: Plan | None) -> Callable[..., list[Any]]:
    # Bound again inside `jit`, so that it is lowered by `lower`.
    return jax.jit(lambda *values: call_p.bind(*values, jaxpr=jaxpr, plan=plan))


class _Under(threading.local):
    """The programs that this thread is evaluating."""

    def __init__(self) -> None:
        self.jaxprs: set[core.ClosedJaxpr] = set()


_under = _Under()


def evaluate_call(
    *values: Any, jaxpr: core.ClosedJaxpr, plan: Plan | None, **_: Any
) -> list[Any]:
    """Evaluate a call at once: compiled, however it came about."""
    if jaxpr in _under.jaxprs:
        # With `jax_debug_nans` JAX looks for the operation that made a NaN.
        return core.jaxpr_as_fun(jaxpr)(*values)
    _under.jaxprs.add(jaxpr)
    try:
        # As in `lower`: this lowers the program itself, not an equation that calls it.
        # With `jit` off the call would be bound again and again.
        with jax.enable_x64(True), jax.disable_jit(False):
            return _jitted(jaxpr, plan)(*values)
    finally:
        _under.jaxprs.discard(jaxpr)

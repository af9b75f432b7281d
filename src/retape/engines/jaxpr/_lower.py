"""The programs of the primitives, on their way to the compiler."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import jax
from jax.extend import core
from jax.interpreters import mlir

from ._callbacks import gathered
from ._calls import call_p
from ._kernel import ENABLED, marked
from ._remembered import remembered


def _run(*values: Any, jaxpr: core.ClosedJaxpr, **_: Any) -> list[Any]:
    return core.jaxpr_as_fun(jaxpr)(*values)


def lower(context: Any, *values: Any, **params: Any) -> Any:
    """Lower the program in place, with 64-bit types whatever the user's setting.

    A sweep counts in 64 bits. Some of JAX's lowering rules trace Python code of their
    own, which would otherwise truncate it; 32-bit values stay what they are.
    """
    with jax.enable_x64(True):
        return mlir.lower_fun(_run, multiple_results=True)(context, *values, **params)


def lower_on_cpu(context: Any, *values: Any, jaxpr: Any, **params: Any) -> Any:
    """The same; what is small runs as one kernel, if there is one device."""
    alone = getattr(context.module_context.axis_context, "num_devices", 0) == 1
    chosen = gathered(jaxpr)
    with jax.enable_x64(True):
        chosen = marked(chosen) if alone and ENABLED else chosen
    return lower(context, *values, jaxpr=chosen, **params)


@remembered(256)
def _jitted(jaxpr: core.ClosedJaxpr) -> Callable[..., list[Any]]:
    # Bound again inside `jit`, so that it is lowered by `lower`.
    return jax.jit(lambda *values: call_p.bind(*values, jaxpr=jaxpr, plan=None))


class _Under(threading.local):
    """The programs that this thread is evaluating."""

    def __init__(self) -> None:
        self.jaxprs: set[core.ClosedJaxpr] = set()


_under = _Under()


def evaluate(*values: Any, jaxpr: core.ClosedJaxpr, **_: Any) -> list[Any]:
    """Evaluate a call at once: compiled, however it came about."""
    if jaxpr in _under.jaxprs:
        # With `jax_debug_nans` JAX looks for the operation that made a NaN.
        return core.jaxpr_as_fun(jaxpr)(*values)
    _under.jaxprs.add(jaxpr)
    try:
        # As in `lower`: this lowers the program itself, not an equation that calls it.
        # With `jit` off the call would be bound again and again.
        with jax.enable_x64(True), jax.disable_jit(False):
            return _jitted(jaxpr)(*values)
    finally:
        _under.jaxprs.discard(jaxpr)

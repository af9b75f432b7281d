"""Compiling ahead of a call."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from retape._errors import UnsupportedError
from retape.engines.jaxpr.jaxprs._target import Target, target


def aot_compile(
    fun: Callable[..., Any], *args: Any, donated: Sequence[int] = ()
) -> jax.stages.Compiled:
    """A function compiled for such arguments, also where the user turned `jit` off.

    Args:
        fun: The function.
        *args: Its arguments, or types of them.
        donated: Positions of those whose place the results may take.
    """
    with jax.disable_jit(False):
        return compiled(aot_lower(fun, *args, donated=donated))


def aot_lower(
    fun: Callable[..., Any], *args: Any, donated: Sequence[int] = ()
) -> jax.stages.Lowered:
    """A function as the compiler is given it, also where the user turned `jit` off.

    Where a device is described it is lowered for that, with its arguments there.
    """
    described = target()
    with jax.disable_jit(False), warnings.catch_warnings():
        # The user is told so when the program itself is compiled.
        warnings.filterwarnings("ignore", "Some donated buffers were not usable")
        jitted = jax.jit(fun, donate_argnums=tuple(donated))
        if described is None:
            return jitted.lower(*args)
        there = jax.tree.map(lambda leaf: _on(described, leaf), args)
        traced: Any = jitted.trace(*there)
        return traced.lower(lowering_platforms=(described.platform,))


def _on(described: Target, leaf: Any) -> jax.ShapeDtypeStruct:
    """The type of an argument that is on a described device."""
    aval = jax.typeof(leaf)
    given = getattr(leaf, "sharding", None)
    if given is not None and len(given.device_set) > 1:
        raise UnsupportedError(
            f"an argument of type {aval} is spread over {len(given.device_set)} "
            f"devices, and one {described.title} is described. Pass arguments without "
            "shardings, or types of what one device holds."
        )
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=described.place)


def compiled(lowered: jax.stages.Lowered) -> jax.stages.Compiled:
    """What was lowered, compiled for this machine's device or the described one."""
    described = target()
    if described is None:
        return lowered.compile()
    return lowered.compile(compiler_options=described.options)


def call_compiled(compiled: Callable[..., Any], *args: Any) -> Any:
    """The results of what was compiled, also where the user turned `jit` off.

    JAX stops at a NaN in them with an error of its insides, which it catches in `jit`
    alone; see `checked_results`.
    """
    with jax.disable_jit(False), jax.debug_nans(False), jax.debug_infs(False):
        return compiled(*args)


def looks_for_nans() -> bool:
    """Tell whether JAX is to stop at a NaN, or at what is infinite."""
    config: Any = jax.config
    return config.jax_debug_nans or config.jax_debug_infs


def checked_results(values: Any) -> Any:
    """What was compiled ahead gave these; JAX stops at a NaN in them, if it is to."""
    if looks_for_nans():
        jax.tree.map(jnp.copy, values)
    return values

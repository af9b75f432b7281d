"""Compiling ahead of a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax


def aot_compile(fun: Callable[..., Any], *args: Any) -> jax.stages.Compiled:
    """A function compiled for such arguments, also where the user turned `jit` off."""
    with jax.disable_jit(False):
        return jax.jit(fun).lower(*args).compile()


def call_compiled(compiled: Callable[..., Any], *args: Any) -> Any:
    """The results of what was compiled, also where the user turned `jit` off."""
    with jax.disable_jit(False):
        return compiled(*args)

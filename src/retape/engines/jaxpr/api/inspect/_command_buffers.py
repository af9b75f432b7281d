"""CUDA graphs: the options that put loops into them, and what cannot be in one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
from jax.extend import core

from retape.engines.jaxpr.api._gradient_options import check_callable
from retape.engines.jaxpr.api.inspect._waits import on_gpu
from retape.engines.jaxpr.jaxprs._jax_internals import caller_line, jaxprs_in_params

_BUFFERED = "FUSION CUBLAS CUBLASLT CUSTOM_CALL CUDNN DYNAMIC_SLICE_FUSION"
"""XLA's own list, in the releases read (openxla/xla, November 2026)."""

_LIBRARY = frozenset(
    "cholesky eig eigh fft geqrf hessenberg householder_product lu schur svd "
    "triangular_solve tridiagonal tridiagonal_solve".split()
)
"""Calls of libraries of which no kind stands in that list, or not marked for it."""
_FROM_OUTSIDE = ("callback", "infeed", "outfeed", "ffi_call")


class GraphBlocker(NamedTuple):
    """An operation that keeps a loop or a conditional out of a CUDA graph.

    Attributes:
        operation: JAX's name of it.
        inside: `"while"` or `"cond"`: what stays out, for which the host waits.
        line: `file:line (function)` of your code, empty where it is not known.
    """

    operation: str
    inside: str
    line: str


def gpu_options() -> dict[str, str]:
    """Options for `jax.jit` that let a GPU run loops and conditionals by itself.

    With them XLA puts loops of any kind and conditionals into CUDA graphs, so that the
    host does not wait for their tests. They are off by default in XLA, need CUDA 12.3,
    and take effect only in the outermost `jit`, for loops all of whose operations a
    graph can hold: none of host callbacks, foreign calls and library calls that are not
    marked for it; `retape.jax.graph_blockers` names them. Retape was not tried with
    these options on a GPU.

    Examples:
        >>> import jax, retape.jax
        >>> double = jax.jit(lambda x: 2 * x, compiler_options=retape.jax.gpu_options())
        >>> float(double(3.0))
        6.0
    """
    names = [*_BUFFERED.split(), "WHILE", "CONDITIONAL"]
    return {"xla_gpu_enable_command_buffer": ",".join(names)}


def graph_blockers(fun: Callable[..., Any], *args: Any) -> tuple[GraphBlocker, ...]:
    """Operations that keep loops and conditionals out of CUDA graphs, with their lines.

    Looks at the program that would be compiled for a GPU, on any machine, and names
    what `gpu_options` has no effect for: callbacks, foreign calls, transfers, FFTs and
    factorisations, wherever in a `while` or a `cond` they stand. Loops of known trip
    count make nobody wait, and are looked at only inside of those. From XLA's sources,
    so an empty answer is no promise: what the compiler rewrites it cannot know.

    Args:
        fun: A function of arrays that JAX can trace; a gradient, say.
        *args: Its arguments.

    Raises:
        GradientTypeError: If `fun` cannot be called.

    Examples:
        >>> import jax, jax.numpy as jnp, retape.jax
        >>> def smoothed(x):
        ...     step = lambda v: jnp.fft.irfft(jnp.fft.rfft(v))
        ...     return jax.lax.while_loop(lambda v: jnp.max(v) > 1, step, x)
        >>> found = retape.jax.graph_blockers(smoothed, jnp.ones(8))
        >>> {(b.operation, b.inside) for b in found}
        {('fft', 'while')}
    """
    check_callable(fun)
    with jax.disable_jit(False):
        jaxpr = jax.make_jaxpr(fun)(*args)
    # A line that makes two of a kind is named once.
    return tuple(dict.fromkeys(_blockers(jaxpr.jaxpr, None)))


def _blockers(
    jaxpr: core.Jaxpr, inside: str | None, call: str = ""
) -> Iterator[GraphBlocker]:
    """Those of a program, in a loop or a conditional or not, that a line called."""
    for eqn in jaxpr.eqns:
        name, line = eqn.primitive.name, caller_line(eqn) or call
        if inside and (name in _LIBRARY or any(word in name for word in _FROM_OUTSIDE)):
            yield GraphBlocker(name, inside, line)
        body = on_gpu(eqn)
        outermost = inside or (name if name in ("while", "cond") else None)
        bodies: list[Any] = [*jaxprs_in_params(eqn.params)] if body is None else [body]
        for inner in bodies:
            yield from _blockers(getattr(inner, "jaxpr", inner), outermost, line)

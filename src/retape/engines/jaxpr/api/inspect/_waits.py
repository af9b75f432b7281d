"""How often a GPU's host would wait in a function, and how it waits less."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
from jax.extend import core

from retape.engines.jaxpr.analysis._host_waits import counted
from retape.engines.jaxpr.api._gradient_options import check_callable
from retape.engines.jaxpr.calls._forward_form import forward_form
from retape.engines.jaxpr.calls._placement import mesh_of_arrays
from retape.engines.jaxpr.calls._platform_form import device_form
from retape.engines.jaxpr.calls._rules import swept_again
from retape.engines.jaxpr.jaxprs._primitive_table import callee
from retape.engines.jaxpr.jaxprs._provenance import call_p, linear_p


class Waits(NamedTuple):
    """What `count_waits` returns.

    Attributes:
        result: What the function returned.
        waits: How often the host would have waited.
    """

    result: Any
    waits: int


def count_waits(fun: Callable[..., Any], *args: Any) -> Waits:
    """Run a function as it would be compiled for a GPU, and count the host's waits.

    A loop whose trip count is not known makes the host wait at each test, a conditional
    once; a `scan` never does (XLA:GPU, November 2026). Gradients of this library are
    taken in the form that a GPU gets, unless `loops` says otherwise. No GPU is needed.

    Args:
        fun: A function of arrays that JAX can trace.
        *args: Its arguments.

    Raises:
        GradientTypeError: If `fun` cannot be called.
        UnsupportedError: If loops or conditionals stand in a `shard_map`.

    Examples:
        >>> import jax, retape.jax
        >>> def halvings(x):
        ...     return jax.lax.while_loop(lambda v: v > 1, lambda v: v // 2, x)
        >>> retape.jax.count_waits(halvings, 8).waits        # three turns, four tests
        4
    """
    check_callable(fun)
    leaves, tree = jax.tree.flatten(args)
    shapes: list[Any] = []

    def flat(*leaves: Any) -> list[Any]:
        outs, shape = jax.tree.flatten(fun(*tree.unflatten(leaves)))
        shapes.append(shape)
        return outs

    with mesh_of_arrays(leaves), jax.disable_jit(False):
        jaxpr = jax.make_jaxpr(flat)(*leaves)
        outs, counts = counted(jaxpr, leaves, on_gpu)
    waits = sum(each.entries + each.turns for each in counts)
    return Waits(shapes[-1].unflatten(outs), waits)


def on_gpu(eqn: core.JaxprEqn) -> core.ClosedJaxpr | None:
    """The program that a call stands for where it is compiled for a GPU."""
    body = callee(eqn)
    if body is None or eqn.primitive not in (call_p, linear_p):
        return body
    device = device_form(body, partial(swept_again, body))
    return device or forward_form(body, eqn.params["plan"], ["cuda"])


_BUFFERED = "FUSION CUBLAS CUBLASLT CUSTOM_CALL CUDNN DYNAMIC_SLICE_FUSION"
"""XLA's own list, in the releases read (openxla/xla, November 2026)."""


def gpu_options() -> dict[str, str]:
    """Options for `jax.jit` that let a GPU run loops and conditionals by itself.

    With them XLA puts loops of any kind and conditionals into CUDA graphs, so that the
    host does not wait for their tests. They are off by default in XLA, need CUDA 12.3,
    and take effect only in the outermost `jit`, for loops all of whose operations a
    graph can hold: none of host callbacks, foreign calls and library calls that are not
    marked for it. Retape was not tried with these options on a GPU.

    Examples:
        >>> import jax, retape.jax
        >>> double = jax.jit(lambda x: 2 * x, compiler_options=retape.jax.gpu_options())
        >>> float(double(3.0))
        6.0
    """
    names = [*_BUFFERED.split(), "WHILE", "CONDITIONAL"]
    return {"xla_gpu_enable_command_buffer": ",".join(names)}

"""What an operation costs: floating-point operations, and bytes that stay.

Both are estimates for choosing. XLA fuses what is computed element by element, so that
such a value takes memory only where something that is not fused reads or makes it.
"""

from __future__ import annotations

from math import prod
from typing import Any

from jax.extend import core

from ._graph import Graph, variables

_DEAR = frozenset(
    {"exp", "exp2", "log", "log1p", "expm1", "tanh", "logistic", "erf", "erf_inv"}
    | {"sin", "cos", "tan", "pow", "rsqrt", "sqrt", "lgamma", "digamma", "atan2"}
)
_DEAR_COST = 10
"""Floating-point operations of one transcendental function, about."""

_FREE = frozenset({"reshape", "squeeze", "expand_dims", "name", "stop_gradient"})
_FUSED = _FREE | frozenset(
    {"broadcast_in_dim", "convert_element_type", "transpose", "iota", "slice", "pad"}
    # What is moved is a part of an operand, however large that is.
    | {"dynamic_slice", "dynamic_update_slice", "gather", "scatter"}
    | {"concatenate", "rev", "copy"}
)


def flops(eqn: Any) -> int:
    """Floating-point operations of an equation, about.

    A `while_loop`'s body is counted once, since its trips are not known.
    """
    name, params = eqn.primitive.name, eqn.params
    out = sum(_size(v) for v in eqn.outvars)
    if name == "dot_general":
        contracted = params["dimension_numbers"][0][0]
        return 2 * out * prod(eqn.invars[0].aval.shape[d] for d in contracted)
    if name == "conv_general_dilated":
        kernel = eqn.invars[1].aval.shape
        spec = params["dimension_numbers"].rhs_spec
        return 2 * out * prod(kernel) // max(1, kernel[spec[0]])
    if name.startswith("scatter"):
        return 0 if name in _FUSED else _size(eqn.invars[2])
    inner = list(core.jaxprs_in_params(params))
    if inner:
        each = [sum(map(flops, getattr(j, "jaxpr", j).eqns)) for j in inner]
        if name == "cond":
            return max(each)
        return sum(each) * (params["length"] if name == "scan" else 1)
    if name in _FUSED:
        return 0
    work = max(out, max((_size(v) for v in variables(eqn.invars)), default=0))
    return work * (_DEAR_COST if name in _DEAR else 1)


def is_heavy(eqn: Any) -> bool:
    """Whether an operation is one that XLA does not fuse with its neighbours."""
    name = eqn.primitive.name
    if name in ("dot_general", "conv_general_dilated", "sort", "fft", "while", "scan"):
        return True
    return name.startswith(("reduce_", "cum", "arg")) or name in ("gather", "scatter")


def is_product(eqn: Any) -> bool:
    """Matrix products and convolutions: dear to compute, cheap to hold."""
    return eqn.primitive.name in ("dot_general", "conv_general_dilated")


def kept_bytes(graph: Graph) -> dict[Any, int]:
    """For each value that takes memory, its bytes."""
    found: dict[Any, int] = {}
    for eqn in graph.jaxpr.eqns:
        if is_heavy(eqn):
            made = [v for v in variables(eqn.invars) if v in graph.made]
            found.update((v, nbytes(v)) for v in (*eqn.outvars, *made))
    return found


def nbytes(variable: Any) -> int:
    """Bytes of a variable's value."""
    return _size(variable) * getattr(variable.aval.dtype, "itemsize", 4)


def _size(variable: Any) -> int:
    return prod(getattr(variable.aval, "shape", ()))

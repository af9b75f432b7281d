"""Floating-point operations of an equation, about: an estimate for choosing."""

from __future__ import annotations

from math import prod
from typing import Any

from jax.extend import core

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
    out = sum(size_of(v) for v in eqn.outvars)
    if name == "dot_general":
        contracted = params["dimension_numbers"][0][0]
        return 2 * out * prod(eqn.invars[0].aval.shape[d] for d in contracted)
    if name == "conv_general_dilated":
        kernel = eqn.invars[1].aval.shape
        spec = params["dimension_numbers"].rhs_spec
        return 2 * out * prod(kernel) // max(1, kernel[spec[0]])
    if name.startswith("scatter"):
        return 0 if name in _FUSED else size_of(eqn.invars[2])
    inner = list(core.jaxprs_in_params(params))
    if inner:
        each = [sum(map(flops, getattr(j, "jaxpr", j).eqns)) for j in inner]
        if name == "cond":
            return max(each)
        return sum(each) * (params["length"] if name == "scan" else 1)
    if name in _FUSED:
        return 0
    work = max(out, max(map(size_of, eqn.invars), default=0))
    return work * (_DEAR_COST if name in _DEAR else 1)


def size_of(atom: Any) -> int:
    """Elements of a variable or a literal; one for what has no shape."""
    return prod(getattr(atom.aval, "shape", ()))

"""Floating-point operations of an equation, about: an estimate for choosing."""

from __future__ import annotations

from math import prod
from typing import Any

from retape.engines.jaxpr.jaxprs._avals import extents
from retape.engines.jaxpr.jaxprs._primitive_table import traits
from retape.engines.jaxpr.jaxprs._rewrite import programs_of


def flops(eqn: Any) -> int:
    """Floating-point operations of an equation, about.

    A `while_loop`'s body is counted once, since its trips are not known.
    """
    name, params = eqn.primitive.name, eqn.params
    out = sum(size_of(v) for v in eqn.outvars)
    if name == "dot_general":
        contracted = params["dimension_numbers"][0][0]
        shape = extents(eqn.invars[0].aval.shape)
        return 2 * out * prod(shape[d] for d in contracted)
    if name == "conv_general_dilated":
        kernel = extents(eqn.invars[1].aval.shape)
        spec = params["dimension_numbers"].rhs_spec
        return 2 * out * prod(kernel) // max(1, kernel[spec[0]])
    if name.startswith("scatter"):
        return traits(eqn).flops * size_of(eqn.invars[2])
    inner = programs_of(eqn)
    if inner:
        each = [sum(map(flops, body.eqns)) for body in inner]
        if name == "cond":
            return max(each)
        return sum(each) * (params["length"] if name == "scan" else 1)
    work = max(out, max(map(size_of, eqn.invars), default=0))
    return work * traits(eqn).flops


def size_of(atom: Any) -> int:
    """Elements of a variable or a literal; one for what has no shape."""
    return prod(extents(getattr(atom.aval, "shape", ())))

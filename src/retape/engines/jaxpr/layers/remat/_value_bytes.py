"""Expensive operations, and the bytes of values that stay.

These are estimates for choosing. XLA fuses what is computed element by element, so that
such a value takes memory only where something that is not fused reads or makes it.
"""

from __future__ import annotations

from typing import Any

from retape.engines.jaxpr.analysis._flops import size_of
from retape.engines.jaxpr.jaxprs._primitive_table import Also, is_a
from retape.engines.jaxpr.jaxprs._subprogram import variables
from retape.engines.jaxpr.layers.remat._flat_program import Graph


def is_heavy(eqn: Any) -> bool:
    """Whether an operation is one that XLA does not fuse with its neighbours."""
    reduces = eqn.primitive.name.startswith(("reduce_", "cum", "arg"))
    return reduces or is_a(eqn, Also.NOT_FUSED)


def is_product(eqn: Any) -> bool:
    """Matrix products and convolutions: dear to compute, cheap to hold."""
    return is_a(eqn, Also.PRODUCT)


def kept_bytes(graph: Graph) -> dict[Any, int]:
    """For each value that takes memory, its bytes."""
    found: dict[Any, int] = {}
    for eqn in graph.jaxpr.eqns:
        if is_heavy(eqn):
            made = [v for v in variables(eqn.invars) if v in graph.made]
            found.update((v, variable_bytes(v)) for v in (*eqn.outvars, *made))
    return found


def variable_bytes(variable: Any) -> int:
    """Bytes of a variable's value."""
    return size_of(variable) * getattr(variable.aval.dtype, "itemsize", 4)

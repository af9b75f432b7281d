"""Which operations are dear, and what bytes stay.

These are estimates for choosing. XLA fuses what is computed element by element, so that
such a value takes memory only where something that is not fused reads or makes it.
"""

from __future__ import annotations

from typing import Any

from .._excerpt import variables
from .._flops import size_of
from ._graph import Graph


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
    return size_of(variable) * getattr(variable.aval.dtype, "itemsize", 4)

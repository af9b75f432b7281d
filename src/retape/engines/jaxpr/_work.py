"""An estimate of what XLA needs besides the arrays that a sweep declares."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jax.extend import core

from ._compile import Compiled
from ._ir import nbytes


def work_bytes(compiled: Compiled) -> int:
    """Room for the intermediate values of the hungriest block, and for copies.

    Fusion makes most intermediates vanish; on the other hand XLA copies registers
    where loops hand them over, four times at most in the programs measured. Both
    together were never below what the compiler reported (`benchmarks/jax/budgets.py`).
    """
    jaxprs: list[Any] = []
    for taped in compiled.taped.values():
        jaxprs += [taped.code.jaxpr, taped.taped]
        jaxprs += [] if taped.pullback is None else [taped.pullback]
    busiest = max((peak_live(j.jaxpr) for j in jaxprs), default=0)
    return busiest + 4 * compiled.layout.capsule_bytes() + _COUNTERS


_COUNTERS = 8192
"""Counters, masks of the online placement, alignment of small buffers."""


def peak_live(jaxpr: Any) -> int:
    """The most bytes of intermediate values alive at once, evaluated in order."""
    last: dict[Any, int] = {}
    for i, eqn in enumerate(jaxpr.eqns):
        last.update((v, i) for v in _variables(eqn.invars))
    outputs = set(_variables(jaxpr.outvars))
    alive = peak = 0
    for i, eqn in enumerate(jaxpr.eqns):
        alive += sum(nbytes(v.aval) for v in eqn.outvars if v not in outputs)
        peak = max(peak, alive)
        gone = {
            v for v in (*_variables(eqn.invars), *eqn.outvars) if last.get(v, i) == i
        }
        inner = gone - outputs - set(jaxpr.invars) - set(jaxpr.constvars)
        alive -= sum(nbytes(v.aval) for v in inner)
    return peak


def _variables(atoms: Iterable[Any]) -> list[Any]:
    return [a for a in atoms if not isinstance(a, core.Literal)]

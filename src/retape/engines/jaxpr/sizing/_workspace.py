"""An estimate of what XLA needs besides the arrays that a sweep declares."""

from __future__ import annotations

from typing import Any

from jax.extend import core

from retape.engines.jaxpr.codegen._compiled import Compiled, step_vjps
from retape.engines.jaxpr.codegen._linearize import TapedCode
from retape.engines.jaxpr.jaxprs._avals import nbytes
from retape.engines.jaxpr.jaxprs._jax_internals import jaxprs_in_params
from retape.engines.jaxpr.jaxprs._subprogram import variables


def work_bytes(compiled: Compiled) -> int:
    """Room for the intermediate values of the hungriest block, and for copies.

    Fusion makes most intermediates vanish; on the other hand XLA copies registers
    where loops hand them over, four times at most in the programs measured. Both
    together were never below what the compiler reported
    (`benchmarks/accelerators/run.py`).
    """
    halves = [t.halves for t in compiled.taped.values()]
    jaxprs = [t.code.jaxpr for t in compiled.taped.values()]
    jaxprs += [h.taped for h in halves]
    jaxprs += [h.pullback for h in halves if h.pullback is not None]
    jaxprs += [t.whole for t in compiled.taped.values() if t.ending]
    busiest = max((peak_live(j.jaxpr) for j in jaxprs), default=0)
    return busiest + 4 * compiled.layout.capsule_bytes() + _COUNTERS


def tapeless_work_bytes(compiled: Compiled, *, thrift: bool = False) -> int:
    """The same where every stage is one step, reversed in one piece of code.

    Values are counted in the jaxpr's order, which comes out up to a third higher than
    what the compiler reports.

    Args:
        compiled: The program.
        thrift: Whether the derivatives are those that hold less at once.
    """
    found = step_vjps(compiled, thrift)
    capsule = compiled.layout.capsule_bytes()
    around = {k: _handed_over(t, found[k]) for k, t in compiled.taped.items()}
    # Copies of registers weigh where they are small beside the work, or in number.
    copies = capsule if capsule > _SMALL else 4 * capsule
    most = max(peak_live(j.jaxpr) + around[k] for k, j in found.items())
    return most + copies + _COUNTERS


_COUNTERS = 8192
"""Counters, masks of the online placement, alignment of small buffers."""
_SMALL = 1 << 16


def _handed_over(block: TapedCode, jaxpr: core.ClosedJaxpr) -> int:
    """Bytes of the rows that a block reads, and of the cotangents that it makes."""
    rows = sum(nbytes(r.out.aval) for r in block.code.reads)
    return rows + sum(nbytes(a) for a in jaxpr.out_avals)


def peak_live(jaxpr: Any) -> int:
    """The most bytes of intermediate values alive at once, evaluated in order."""
    last: dict[Any, int] = {}
    for i, eqn in enumerate(jaxpr.eqns):
        last.update((v, i) for v in variables(eqn.invars))
    outputs = set(variables(jaxpr.outvars))
    alive = peak = 0
    for i, eqn in enumerate(jaxpr.eqns):
        alive += sum(nbytes(v.aval) for v in eqn.outvars if v not in outputs)
        within = [
            peak_live(getattr(j, "jaxpr", j)) for j in jaxprs_in_params(eqn.params)
        ]
        peak = max(peak, alive + max(within, default=0))
        gone = {
            v for v in (*variables(eqn.invars), *eqn.outvars) if last.get(v, i) == i
        }
        inner = gone - outputs - set(jaxpr.invars) - set(jaxpr.constvars)
        alive -= sum(nbytes(v.aval) for v in inner)
    return peak

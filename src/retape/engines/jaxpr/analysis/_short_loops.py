"""Loops of a few trips that take more memory opened than stored.

The stages of a Runge-Kutta step are such a loop: seven trips, whose carry has a buffer
of seven slopes beside the state. Opened, a snapshot between two stages holds all of it;
stored, the residuals of seven trips are on the tape of one step, and snapshots hold the
state alone. A Tsit5 solve of 2,000 numbers in double precision with 5 snapshots took
113 states opened and takes 54 stored; JAX's own loops with checkpoints take 45
(JAX 0.10.2, 2026-11-22; `benchmarks/solvers/budgets.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from jax.extend import core

from retape.engines.jaxpr.jaxprs._avals import nbytes, struct
from retape.engines.jaxpr.jaxprs._evaluate import stored_by, which

_FEW_TRIPS = 16
"""Trips. Longer loops are what snapshots are for."""

_CARRIES = 2
"""Residuals of all trips, in units of the carry: to reverse the loop from within takes
one snapshot of the carry and the state that is advanced, at least."""


def cheaper_stored(
    body: core.ClosedJaxpr, active: Sequence[bool], carry: slice, trips: int
) -> bool:
    """True if the residuals of all trips take no more than two snapshots inside would.

    Args:
        body: What a trip does.
        active: For each of its inputs, whether it carries a derivative.
        carry: Which inputs are carried from trip to trip; the rest is there anyway.
        trips: How many there are at most.
    """
    if trips > _FEW_TRIPS:
        return False
    carried = sum(map(nbytes, body.in_avals[carry]))
    stored = residual_bytes(body, active, set(range(*carry.indices(len(active)))))
    return trips * stored <= _CARRIES * carried


def residual_bytes(
    body: core.ClosedJaxpr, active: Sequence[bool], counted: set[int]
) -> int:
    """What JAX's own derivative of a body stores; of its inputs only some count."""
    moving = which(active)
    types = list(map(struct, body.in_avals))
    made = stored_by(core.jaxpr_as_fun(body), types, moving).jaxpr
    there = {v for i, v in enumerate(made.invars) if i not in counted}
    stored = {v for v in made.outvars if isinstance(v, core.Var)}
    return sum(nbytes(v.aval) for v in stored - there - {*made.constvars})

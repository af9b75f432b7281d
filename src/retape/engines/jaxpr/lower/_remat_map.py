"""A `scan` in a step that carries no derivative stays one operation, however large.

A scan whose residuals are many is opened: each trip is a step. In the middle of another
step, that makes registers of all that the rest of the step still needs, in every
snapshot, and a run of many more steps. A scan that carries no derivative (`lax.map`, or
stacked outputs beside a counter) needs none of it: its trips depend on one another by
numbers alone, so each can be run again when it is swept back. Before, and after:

    zs = scan[body] ys          a step for each trip; ys, zs in every snapshot
    zs = scan[checkpoint body] ys          one operation, which tapes what it reads

It is right whatever the scan does, and holds the residuals of one trip at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.extend import core

from retape.engines.jaxpr.analysis._activity import opens_inside, scan_carry
from retape.engines.jaxpr.jaxprs._avals import struct
from retape.engines.jaxpr.jaxprs._jax_internals import scan_parts
from retape.engines.jaxpr.jaxprs._subprogram import closed


def keep_map(eqn: Any, active: Sequence[bool], grain: int) -> Any:
    """The scan with trips that are run again; `None` if it has to be opened."""
    if eqn.primitive.name != "scan":
        return None
    params, body = eqn.params, closed(eqn.params["jaxpr"])
    nc, nk = scan_parts(params)
    carry, _ = scan_carry(params, active)
    if any(carry) or body.consts:
        return None
    # A loop inside that has to be reversed step by step cannot be run again whole.
    if opens_inside(body, [*active[:nc], *carry, *active[nc + nk :]], grain):
        return None
    again = jax.checkpoint(core.jaxpr_as_fun(body), prevent_cse=False)
    made = jax.make_jaxpr(again)(*map(struct, body.in_avals))
    same = [(a.shape, a.dtype) for a in body.out_avals]
    if made.consts or [(a.shape, a.dtype) for a in made.out_avals] != same:
        return None
    return eqn.replace(params=params | {"jaxpr": made})

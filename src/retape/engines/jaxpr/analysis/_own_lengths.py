"""Loops that devices leave at their own time, and operations that wait for all of them.

Inside `jax.shard_map` each device runs the program by itself. A collective is a place
where they meet: it must be reached as often by each. Types tell what differs from
device to device (`varying`), unless `check_vma=False` has turned that off: then nothing
varies, and a loop whose test reads values may end anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
from jax.extend import core

from retape.engines.jaxpr.jaxprs._avals import is_inexact, varying
from retape.engines.jaxpr.jaxprs._jax_internals import jaxprs_in_params, named_by
from retape.engines.jaxpr.jaxprs._primitive_table import Also, is_a
from retape.engines.jaxpr.jaxprs._rewrite import contains

_QUIET = frozenset(("axis_index", "pvary", "preduced", "vary_unreduced_cast"))
"""They name an axis, and no device waits for another."""


def devices_run_apart() -> bool:
    """Whether what is being traced is each device's own part of a `shard_map`."""
    return bool(jax.sharding.get_abstract_mesh().manual_axes)


def choice_of(eqn: core.JaxprEqn) -> Any:
    """The type of what says how often something inside is run; `None` if nothing does.

    That is the test of a `while`, and the number of the branch of a `cond` with loops.
    """
    if eqn.primitive.name == "while":
        return eqn.params["cond_jaxpr"].out_avals[0]
    branches = eqn.params["branches"] if eqn.primitive.name == "cond" else ()
    if any(contains(b, lambda e: is_a(e, Also.LOOP)) for b in branches):
        return eqn.invars[0].aval
    return None


def differs(eqn: core.JaxprEqn) -> bool:
    """Whether types say that devices run the inside each its own number of times."""
    choice = choice_of(eqn)
    return choice is not None and bool(varying(choice))


def tells(jaxpr: Any) -> bool:
    """Whether types tell what differs: something in the program does."""
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    atoms = [*inner.invars, *(v for e in inner.eqns for v in e.outvars)]
    if any(hasattr(a.aval, "shape") and varying(a.aval) for a in atoms):
        return True
    return any(tells(j) for e in inner.eqns for j in jaxprs_in_params(e.params))


def meetings(eqns: Sequence[core.JaxprEqn]) -> Iterator[core.JaxprEqn]:
    """The operations, however deep, at which devices wait for one another."""
    for eqn in eqns:
        deeper = list(jaxprs_in_params(eqn.params))
        for body in deeper:
            yield from meetings(getattr(body, "jaxpr", body).eqns)
        if not deeper and named_by(eqn) and eqn.primitive.name not in _QUIET:
            yield eqn


def copies(eqns: Sequence[core.JaxprEqn]) -> Iterator[core.JaxprEqn]:
    """The operations, however deep, whose derivative is a sum over devices."""
    for eqn in eqns:
        for body in jaxprs_in_params(eqn.params):
            yield from copies(getattr(body, "jaxpr", body).eqns)
        if eqn.primitive.name == "pvary" and is_inexact(eqn.invars[0].aval):
            yield eqn

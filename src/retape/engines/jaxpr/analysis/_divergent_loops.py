"""Loops that devices leave at their own time, and operations that wait for all of them.

Inside `jax.shard_map` each device runs the program by itself. A collective is a place
where they meet: it must be reached as often by each. Types tell what differs from
device to device (`varying`), unless `check_vma=False` has turned that off: then nothing
varies, and a loop whose test reads values may end anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import jax
from jax.extend import core

from retape.engines.jaxpr.jaxprs._avals import is_inexact, varying
from retape.engines.jaxpr.jaxprs._jax_internals import named_by
from retape.engines.jaxpr.jaxprs._primitive_table import Also, is_a
from retape.engines.jaxpr.jaxprs._rewrite import contains, every_eqn, programs_of

_QUIET = frozenset(("axis_index", "pvary", "preduced", "vary_unreduced_cast"))
"""They name an axis, and no device waits for another."""


def devices_run_apart() -> bool:
    """Whether what is being traced is each device's own part of a `shard_map`."""
    return bool(jax.sharding.get_abstract_mesh().manual_axes)


def trip_predicate(eqn: core.JaxprEqn) -> Any:
    """The type of what says how often something inside is run; `None` if nothing does.

    That is the test of a `while`, and the number of the branch of a `cond` with loops.
    """
    if eqn.primitive.name == "while":
        return eqn.params["cond_jaxpr"].out_avals[0]
    branches = eqn.params["branches"] if eqn.primitive.name == "cond" else ()
    if any(contains(b, lambda e: is_a(e, Also.LOOP)) for b in branches):
        return eqn.invars[0].aval
    return None


def is_divergent(eqn: core.JaxprEqn) -> bool:
    """Whether types say that devices run the inside each its own number of times."""
    choice = trip_predicate(eqn)
    return choice is not None and bool(varying(choice))


def tracks_varying(jaxpr: core.ClosedJaxpr) -> bool:
    """Whether types tell what differs: something in the program does."""
    made = (v for eqn in every_eqn(jaxpr.eqns) for v in (*eqn.invars, *eqn.outvars))
    atoms = chain(jaxpr.jaxpr.invars, made)
    return any(hasattr(a.aval, "shape") and varying(a.aval) for a in atoms)


def collectives(eqns: Sequence[core.JaxprEqn]) -> Iterator[core.JaxprEqn]:
    """The operations, however deep, at which devices wait for one another."""
    for eqn in every_eqn(eqns):
        waits = named_by(eqn) and eqn.primitive.name not in _QUIET
        if waits and not programs_of(eqn):
            yield eqn


def pvary_equations(eqns: Sequence[core.JaxprEqn]) -> Iterator[core.JaxprEqn]:
    """The operations, however deep, whose derivative is a sum over devices."""
    for eqn in every_eqn(eqns):
        if eqn.primitive.name == "pvary" and is_inexact(eqn.invars[0].aval):
            yield eqn

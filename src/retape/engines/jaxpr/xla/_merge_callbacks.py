"""Callbacks on the host hand back no array that nobody on the device reads.

What a `pure_callback` returns is one buffer on the device for each result, read or not,
and memory is set aside for it even where the callback stands in a branch that is never
taken. A check of all that a solver returns (`equinox.error_if`) has two such callbacks,
the second of which is given what the first returns, eight megabytes for two of saved
states. Before, and after:

    a b c = pure_callback[first] i
    d e f = pure_callback[second] a b c i       only e is read

    e = pure_callback[second of first] i i

Done when a sweep is lowered for a CPU, for then no transformation can change what is
inside any more. Other devices may take an error for a value: there the second callback
of the check says what the first one found, so there they stay two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.extend import core

from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.jaxprs._rewrite import contains, inside
from retape.engines.jaxpr.jaxprs._subprogram import variables

_PARAMS = {"callback", "result_avals", "sharding", "vmap_method"}
"""The parameters of a callback that is understood; one with more stays as it is."""


@cached(64)
def gathered(jaxpr: core.ClosedJaxpr) -> core.ClosedJaxpr:
    """The program with its callbacks joined, and only what is read of their results."""
    if not contains(jaxpr, _is_callback):
        return jaxpr
    inner = jaxpr.jaxpr
    eqns = [
        e.replace(params={k: inside(v, gathered) for k, v in e.params.items()})
        for e in inner.eqns
    ]
    read = Counter(a for e in eqns for a in variables(e.invars))
    read.update(variables(inner.outvars))
    eqns = [_without_unread(e, read) for e in _merged(eqns, read)]
    return core.ClosedJaxpr(inner.replace(eqns=eqns), jaxpr.consts)


def _is_callback(eqn: core.JaxprEqn) -> bool:
    return eqn.primitive.name == "pure_callback" and eqn.params.keys() == _PARAMS


# Two that follow one another ------------------------------------------------------


@dataclass(frozen=True, slots=True, weakref_slot=True)
class _Then:
    """A callback of what another returns."""

    first: Callable[..., Any]
    avals: tuple[Any, ...]
    """Types of the first one's results."""
    second: Callable[..., Any]
    given: int
    """How many values the first takes."""
    order: tuple[int, ...]
    """Arguments of the second: numbers of the first's results, then of other values."""

    def __call__(self, *values: Any) -> Any:
        found = checked(self.first(*values[: self.given]), self.avals)
        # It is promised arrays of JAX.
        known = [*jax.device_put(found), *values[self.given :]]
        return self.second(*(known[i] for i in self.order))


def _merged(
    eqns: Sequence[core.JaxprEqn], read: Counter[Any]
) -> Sequence[core.JaxprEqn]:
    """The equations, each callback that only another one reads a part of that."""
    found: list[core.JaxprEqn] = []
    for eqn in eqns:
        if _is_callback(eqn):
            own = Counter(variables(eqn.invars))
            firsts = [e for e in found if _is_callback(e) and _feeds(e, eqn, own, read)]
            for first in reversed(firsts):
                found = [e for e in found if e is not first]
                eqn = _composed(first, eqn)
        found.append(eqn)
    return found


def _feeds(
    first: core.JaxprEqn, second: core.JaxprEqn, own: Counter[Any], read: Counter[Any]
) -> bool:
    """Tell whether all that is read of one callback's results another one reads."""
    alone = all(own[v] == read[v] for v in first.outvars)
    some = any(own[v] for v in first.outvars)
    return alone and some and first.params["sharding"] == second.params["sharding"]


def _composed(first: core.JaxprEqn, second: core.JaxprEqn) -> core.JaxprEqn:
    known: list[Any] = list(first.outvars)
    others: list[Any] = []
    order: list[int] = []
    for atom in second.invars:
        literal = isinstance(atom, core.Literal)
        if literal or atom not in known:
            known.append(object() if literal else atom)
            others.append(atom)
            order.append(len(known) - 1)
        else:
            order.append(known.index(atom))
    both = _Then(
        first.params["callback"],
        tuple(first.params["result_avals"]),
        second.params["callback"],
        len(first.invars),
        tuple(order),
    )
    params = second.params | {"callback": both}
    return second.replace(invars=[*first.invars, *others], params=params)


# What is read ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, weakref_slot=True)
class _Some:
    """A callback of whose results some are handed on."""

    whole: Callable[..., Any]
    avals: tuple[Any, ...]
    kept: tuple[int, ...]

    def __call__(self, *values: Any) -> Any:
        found = checked(self.whole(*values), self.avals)
        return [found[i] for i in self.kept]


def _without_unread(eqn: core.JaxprEqn, read: Counter[Any]) -> core.JaxprEqn:
    """A callback with the results that are read, if there are any."""
    if not _is_callback(eqn):
        return eqn
    kept = tuple(i for i, v in enumerate(eqn.outvars) if read[v])
    if not kept or len(kept) == len(eqn.outvars):
        return eqn
    avals = tuple(eqn.params["result_avals"])
    some = _Some(eqn.params["callback"], avals, kept)
    params = eqn.params | {
        "callback": some,
        "result_avals": tuple(avals[i] for i in kept),
    }
    return eqn.replace(outvars=[eqn.outvars[i] for i in kept], params=params)


def checked(values: Sequence[Any], avals: Sequence[Any]) -> list[np.ndarray]:
    """Check that a callback returned what it declared.

    Raises:
        RuntimeError: As JAX raises it where it looks at results itself.
    """
    found = [np.asarray(v) for v in values]
    wanted = [(tuple(a.shape), np.dtype(a.dtype)) for a in avals]
    if _result_types(found) != wanted:
        # Numbers of Python's come with the widest types.
        narrow = map(jax.dtypes.canonicalize_dtype, (v.dtype for v in found))
        found = [v.astype(t) for v, t in zip(found, narrow, strict=True)]
    if _result_types(found) != wanted:
        raise RuntimeError(
            f"A `pure_callback` returned arrays of types {_result_types(found)}, and "
            f"its `result_shape_dtypes` are {wanted}. Return what was declared."
        )
    return found


def _result_types(values: Sequence[np.ndarray]) -> list[Any]:
    return [(v.shape, v.dtype) for v in values]

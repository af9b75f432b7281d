"""A part of a program as a program of its own, equation for equation.

Nothing is traced again: that would cost Python a pass over the program each time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from jax.extend import core

from retape.engines.jaxpr.jaxprs._jax_internals import DropVar


def excerpt(
    like: core.Jaxpr,
    ins: Sequence[Any],
    outs: Sequence[Any],
    eqns: Sequence[core.JaxprEqn],
    consts: Mapping[core.Var, Any] | None = None,
) -> core.ClosedJaxpr:
    """A program of some of the operations of another.

    Args:
        like: The other.
        ins: Its variables that are to be inputs.
        outs: Those that are to be outputs, or literals.
        eqns: The operations, in order.
        consts: The values of the other's constants; those that are read are kept.
    """
    read = {*variables(outs), *(v for e in eqns for v in variables(e.invars))}
    kept = {v: c for v, c in (consts or {}).items() if v in read}
    unknown = like.debug_info.with_unknown_names()._replace(
        arg_names=("",) * len(ins), result_paths=("",) * len(outs)
    )
    jaxpr = like.replace(
        constvars=list(kept),
        invars=list(ins),
        outvars=list(outs),
        eqns=list(eqns),
        effects=frozenset().union(*(e.effects for e in eqns)),
        debug_info=unknown,
    )
    return core.ClosedJaxpr(jaxpr, tuple(kept.values()))


def slice_between(
    closed: core.ClosedJaxpr, given: Sequence[Any], outs: Sequence[Any]
) -> core.ClosedJaxpr:
    """The part of a program that computes some of its values from others.

    Args:
        closed: The program.
        given: Variables of it, each of them once.
        outs: Variables that follow from those, and literals.
    """
    inner = closed.jaxpr
    consts = dict(zip(inner.constvars, closed.consts, strict=True))
    known = {*given, *consts}
    needed = set(variables(outs)) - known
    chosen: list[core.JaxprEqn] = []
    for eqn in reversed(inner.eqns):
        if needed.isdisjoint(eqn.outvars):
            continue
        chosen.append(_without(eqn, known))
        needed -= set(eqn.outvars)
        needed |= set(variables(eqn.invars)) - known
    assert not needed, "a value does not follow from those given"
    return excerpt(inner, given, outs, chosen[::-1], consts)


def _without(eqn: core.JaxprEqn, known: Collection[Any]) -> core.JaxprEqn:
    """The operation, making nothing that is known already."""
    if not any(v in known for v in eqn.outvars):
        return eqn
    made = [DropVar(v.aval) if v in known else v for v in eqn.outvars]
    return eqn.replace(outvars=made)


def variables(atoms: Iterable[Any]) -> list[Any]:
    """Those that are no literals."""
    return [a for a in atoms if not isinstance(a, core.Literal)]


def closed(jaxpr: Any) -> core.ClosedJaxpr:
    """A jaxpr, open or closed, as a closed one."""
    if isinstance(jaxpr, core.ClosedJaxpr):
        return jaxpr
    assert not jaxpr.constvars
    return core.ClosedJaxpr(jaxpr, ())


def hoist(jaxpr: core.ClosedJaxpr) -> tuple[core.ClosedJaxpr, list[Any]]:
    """The program with its constants as leading inputs."""
    if not jaxpr.consts:
        return jaxpr, []
    inner = jaxpr.jaxpr
    names = inner.debug_info.arg_names
    if names is not None:
        names = ("",) * len(inner.constvars) + tuple(names)
    opened = inner.replace(
        constvars=[],
        invars=[*inner.constvars, *inner.invars],
        debug_info=inner.debug_info._replace(arg_names=names),
    )
    return core.ClosedJaxpr(opened, ()), list(jaxpr.consts)

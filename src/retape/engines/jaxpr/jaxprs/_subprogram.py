"""A part of a program as a program of its own, equation for equation.

Nothing is traced again: that would cost Python a pass over the program each time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import jax
from jax.extend import core

from retape.engines.jaxpr.jaxprs._jax_internals import DropVar

Part = tuple[Callable[..., Sequence[Any]], Sequence[Any]]
"""A function of arrays, and their types."""


def traced_together(parts: Sequence[Part]) -> list[core.ClosedJaxpr]:
    """The programs of several functions, in one trace.

    To begin and end a trace takes as long as some fifty operations in it.

    Examples:
        >>> import jax.numpy as jnp
        >>> scalar = jax.ShapeDtypeStruct((), jnp.float32)
        >>> both = traced_together([(lambda x: [x + 1], [scalar])] * 2)
        >>> [len(program.eqns) for program in both]
        [1, 1]
    """
    sizes: list[int] = []

    def run(*values: Any) -> list[Any]:
        rest, outs = iter(values), []
        for fun, types in parts:
            found = list(fun(*islice(rest, len(types))))
            sizes.append(len(found))
            outs += found
        return outs

    whole = jax.make_jaxpr(run)(*(t for _, types in parts for t in types))
    ins, outs = iter(whole.jaxpr.invars), iter(whole.jaxpr.outvars)
    ends = [
        (list(islice(ins, len(types))), list(islice(outs, n)))
        for (_, types), n in zip(parts, sizes, strict=True)
    ]
    return _parted(whole, ends)


def _parted(
    whole: core.ClosedJaxpr, ends: Sequence[tuple[list[Any], list[Any]]]
) -> list[core.ClosedJaxpr]:
    """Programs that stand in one, one after the other, by their inputs and outputs."""
    owner = {v: i for i, (ins, outs) in enumerate(ends) for v in (*ins, *outs)
             if not isinstance(v, core.Literal)}  # fmt: skip
    consts = dict(zip(whole.jaxpr.constvars, whole.consts, strict=True))
    eqns: list[list[core.JaxprEqn]] = [[] for _ in ends]
    for eqn in whole.eqns:  # what reads something is where that is
        found = [owner[v] for v in variables(eqn.invars) if v in owner]
        owner.update((v, found[0]) for v in eqn.outvars if found)
    last = len(ends) - 1
    for eqn in reversed(whole.eqns):
        read = [v for v in variables(eqn.invars) if v not in consts]
        # What reads nothing and nobody reads was traced before the next that is read.
        last = next((owner[v] for v in (*read, *eqn.outvars) if v in owner), last)
        owner.update((v, last) for v in read if v not in owner)
        eqns[last].append(eqn)
    return [
        excerpt(whole.jaxpr, ins, outs, own[::-1], consts)
        for (ins, outs), own in zip(ends, eqns, strict=True)
    ]


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


def in_line(made: core.ClosedJaxpr, eqn: core.JaxprEqn) -> list[core.JaxprEqn]:
    """The equations of a program, for one equation that does the same."""
    assert not made.consts, "a constant has no place among equations"
    inner = made.jaxpr
    named = dict(zip(inner.invars, eqn.invars, strict=True))
    assert not set(inner.outvars) & set(inner.invars), "a result that is an input"
    named |= zip(inner.outvars, eqn.outvars, strict=True)

    def atom(old: Any) -> Any:
        return old if isinstance(old, core.Literal) else named.get(old, old)

    return [
        e.replace(invars=list(map(atom, e.invars)), outvars=list(map(atom, e.outvars)))
        for e in made.eqns
    ]


def joined(
    first: core.ClosedJaxpr, second: core.ClosedJaxpr, rest: int
) -> core.ClosedJaxpr:
    """Two parts of one program, the second fed by the first.

    Args:
        first: What makes the leading inputs of the second.
        second: What follows.
        rest: How many inputs of the second are left; they stand behind the first's.
    """
    a, b = first.jaxpr, second.jaxpr
    n = len(b.invars) - rest
    made = dict(zip(b.invars[:n], a.outvars, strict=True))

    def after(atom: Any) -> Any:
        return atom if isinstance(atom, core.Literal) else made.get(atom, atom)

    eqns = [e.replace(invars=list(map(after, e.invars))) for e in b.eqns]
    consts = dict(zip(a.constvars, first.consts, strict=True))
    consts |= zip(b.constvars, second.consts, strict=True)
    ins, outs = [*a.invars, *b.invars[n:]], list(map(after, b.outvars))
    return excerpt(a, ins, outs, [*a.eqns, *eqns], consts)


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

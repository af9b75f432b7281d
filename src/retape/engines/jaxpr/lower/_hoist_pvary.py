"""Hoist `pvary` out of loops whose trip count differs between devices.

Inside `shard_map`, a value that is the same everywhere meets values that differ only
after `pvary`, which JAX puts where the two meet: in the loop. Its transpose is a sum
over the devices. In a loop whose trip count differs from device to device that sum
waits for ever: some devices are in the loop, others behind it. So the copies are made
of what the loop reads, before it:

    before:  while (differs) { w = pvary(p[i]);  x = x * w }
    after:   q = pvary(p);  while (differs) { w = q[i];  x = x * w }

and cotangents are added up over the devices once. A value out of a loop or a branch of
its own is copied as it is, in front of the loop if it follows from what the loop does
not change. What is left in the loop waits as before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend import core

from retape.engines.jaxpr.analysis._divergent_loops import is_divergent
from retape.engines.jaxpr.jaxprs._avals import is_inexact, spread, struct, varying
from retape.engines.jaxpr.jaxprs._evaluate import Environment, bind, evaluate
from retape.engines.jaxpr.jaxprs._jax_internals import (
    jaxprs_in_params,
    scan_parts,
    scan_widened,
)
from retape.engines.jaxpr.jaxprs._primitive_table import Also, is_a
from retape.engines.jaxpr.jaxprs._rewrite import rewrite
from retape.engines.jaxpr.jaxprs._subprogram import closed, slice_between, variables

Changed = tuple[core.JaxprEqn, list[Any]]


def hoist_pvary(jaxpr: core.ClosedJaxpr) -> core.ClosedJaxpr:
    """The program, whose loops of differing length wait for no other device."""
    if not _has(jaxpr.jaxpr):
        return jaxpr

    def chosen(eqn: core.JaxprEqn) -> bool:
        return _differs(eqn) or is_a(eqn, Also.OWN_SWEEP)

    return rewrite(jaxpr, chosen, _bind_hoisted)


def _has(jaxpr: Any) -> bool:
    """Tell whether there is a loop whose trip count differs between devices."""
    own = [e for e in jaxpr.eqns if not is_a(e, Also.OWN_SWEEP)]
    inner = (j for e in own for j in jaxprs_in_params(e.params))
    return any(map(_differs, own)) or any(map(_has, inner))


def _differs(eqn: core.JaxprEqn) -> bool:
    return eqn.primitive.name == "while" and is_divergent(eqn)


# Equations with programs in them: which operands stay the same inside -----------------


def _bind_hoisted(eqn: core.JaxprEqn, values: Sequence[Any]) -> list[Any]:
    """Evaluate an equation, its copies in front of it."""
    if is_a(eqn, Also.JIT):
        return _evaluate_hoisted(closed(eqn.params["jaxpr"]), values)
    if is_a(eqn, Also.REMAT):
        return bind(*_remat(eqn, values))
    match eqn.primitive.name:
        case "while":
            eqn, values = _while_hoisted(eqn, values)
        case "scan":
            eqn, values = _scan_hoisted(eqn, values)
        case "cond":
            eqn, values = _cond_hoisted(eqn, values)
        case _:
            pass
    return bind(eqn, list(values))


def _while_hoisted(eqn: core.JaxprEqn, values: Sequence[Any]) -> Changed:
    first, n = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    body = _hoisted(eqn.params["body_jaxpr"], range(n))
    own = body.taken(values[first:])
    params = {"body_jaxpr": body.rest(n), "body_nconsts": n + len(own)}
    at = first + n
    return _with_params(eqn, params), [*values[:at], *own, *values[at:]]


def _scan_hoisted(eqn: core.JaxprEqn, values: Sequence[Any]) -> Changed:
    n, carried = scan_parts(eqn.params)
    body = _hoisted(closed(eqn.params["jaxpr"]), range(n))
    own = body.taken(values)
    values = [*values[:n], *own, *values[n:]]
    # A row of a copy is the copy of a row.
    rows = range(n + len(own) + carried, len(values))
    body = _hoisted(body.rest(n), rows, alone=True)
    taken = body.taken(values)
    inner = body.rest(len(values))
    params = scan_widened(eqn.params, inner, consts=len(own), rows=len(taken))
    return eqn.replace(params=params), [*values, *taken]


def _cond_hoisted(eqn: core.JaxprEqn, values: Sequence[Any]) -> Changed:
    index, *given = values
    branches = list(eqn.params["branches"])
    for i, branch in enumerate(branches):
        # What a branch makes may be infinite where the other one is taken.
        arm = _hoisted(branch, range(len(given)), alone=True)
        given += arm.taken(given)
        for j, other in enumerate(branches):
            branches[j] = arm.rest(None) if j == i else _widened(other, given)
    return _with_params(eqn, {"branches": tuple(branches)}), [index, *given]


def _remat(eqn: core.JaxprEqn, values: Sequence[Any]) -> Changed:
    body = _hoisted(closed(eqn.params["jaxpr"]), range(len(values)))
    inner = body.rest(None)
    if inner.consts:
        return eqn, list(values)
    return _with_params(eqn, {"jaxpr": inner.jaxpr}), [*values, *body.taken(values)]


def _with_params(eqn: core.JaxprEqn, params: dict[str, Any]) -> core.JaxprEqn:
    return eqn.replace(params=eqn.params | params)


def _widened(jaxpr: core.ClosedJaxpr, given: Sequence[Any]) -> core.ClosedJaxpr:
    """The program with more inputs, which it does not read."""
    n = len(jaxpr.in_avals)
    types = [*jaxpr.in_avals, *map(jax.typeof, given[n:])]
    return _trace_avals(lambda *v: core.jaxpr_as_fun(jaxpr)(*v[:n]), types)


def _trace_avals(fun: Callable[..., Any], avals: Sequence[Any]) -> core.ClosedJaxpr:
    return jax.make_jaxpr(fun)(*map(struct, avals))


# Copies ------------------------------------------------------------------------------

Copy = tuple[Any, frozenset[str]]
"""A variable, and the mesh axes along which it is to be each device's own."""


@dataclass(frozen=True, slots=True, eq=False)
class _Hoisted:
    """A program, and the copies that it can be given instead of making them."""

    whole: core.ClosedJaxpr
    same: tuple[int, ...]
    """Positions of the inputs that the copies follow from."""
    copies: tuple[Copy, ...]

    def taken(self, values: Sequence[Any]) -> list[Any]:
        """The copies, from the values of all inputs."""
        given = [self.whole.jaxpr.invars[i] for i in self.same]
        wanted = list(dict.fromkeys(v for v, _ in self.copies))
        made = core.jaxpr_as_fun(slice_between(self.whole, given, wanted))
        found = dict(zip(wanted, made(*(values[i] for i in self.same)), strict=True))
        return [spread(found[v], axes) for v, axes in self.copies]

    def rest(self, at: int | None) -> core.ClosedJaxpr:
        """The program with the copies as inputs: at this position, or behind all."""
        types = self.whole.in_avals
        at = len(types) if at is None else at
        n = len(self.copies)

        def run(*values: Any) -> list[Any]:
            given = dict(zip(self.copies, values[at : at + n], strict=True))
            return _PerDevice(self.whole, given).through(
                [*values[:at], *values[at + n :]]
            )

        own = [_own_type(v.aval, axes) for v, axes in self.copies]
        given = list(map(struct, types))
        return jax.make_jaxpr(run)(*given[:at], *own, *given[at:])


def _own_type(aval: Any, axes: frozenset[str]) -> jax.ShapeDtypeStruct:
    return jax.eval_shape(lambda x: spread(x, axes), struct(aval))


def _hoisted(
    jaxpr: core.ClosedJaxpr, same: Sequence[int], *, alone: bool = False
) -> _Hoisted:
    """A program, and the copies of what follows from inputs that stay the same.

    Args:
        jaxpr: The program.
        same: The positions of those inputs.
        alone: Whether nothing is made outside but copies of these inputs themselves.
    """
    whole = _trace_avals(lambda *v: _evaluate_hoisted(jaxpr, v), jaxpr.in_avals)
    inner, makers = whole.jaxpr, _makers(whole)
    outside = {inner.invars[i] for i in same}
    known = {*inner.constvars, *outside}
    for eqn in () if alone else inner.eqns:
        if not eqn.effects and known.issuperset(variables(eqn.invars)):
            known.update(eqn.outvars)
            outside.update(eqn.outvars)
    copies = dict.fromkeys(
        copy
        for eqn in whole.eqns
        if eqn.primitive.name == "pvary"
        for copy in _copies_outside(
            eqn.invars[0], frozenset(eqn.params["axes"]), makers, outside
        )
    )
    return _Hoisted(whole, tuple(same), tuple(copies))


def _copies_outside(
    var: Any,
    axes: frozenset[str],
    makers: Mapping[Any, core.JaxprEqn],
    outside: Collection[Any],
) -> Iterator[Copy]:
    """The copies to be made outside, so that this one follows from them.

    Arithmetic on copies is the copy of the arithmetic, so for `pvary(a * b)` copies of
    `a` and `b` will do.
    """
    if isinstance(var, core.Literal) or not is_inexact(var.aval):
        return
    maker = makers.get(var)
    if maker is not None and _is_copied_through(maker, axes):
        for read in maker.invars:
            yield from _copies_outside(read, axes, makers, outside)
    elif var in outside:
        yield var, axes


def _makers(jaxpr: core.ClosedJaxpr) -> dict[Any, core.JaxprEqn]:
    return {v: e for e in jaxpr.eqns for v in e.outvars}


def _is_copied_through(eqn: core.JaxprEqn, axes: frozenset[str]) -> bool:
    """Tell whether an equation makes of copies the copy of what it makes."""
    return (
        not eqn.effects
        and not list(jaxprs_in_params(eqn.params))
        and not any(callable(p) for p in eqn.params.values())
        and not any(varying(a.aval) & axes for a in (*eqn.invars, *eqn.outvars))
        and eqn.primitive.name != "pvary"
    )


def _evaluate_hoisted(jaxpr: core.ClosedJaxpr, values: Sequence[Any]) -> list[Any]:
    """Evaluate a program, every loop in it with its copies in front of it."""
    return _PerDevice(jaxpr, {}).through(values)


class _PerDevice:
    """Evaluation of a program, its copies made of copies that are given."""

    def __init__(self, jaxpr: core.ClosedJaxpr, given: dict[Copy, Any]) -> None:
        self.jaxpr = jaxpr
        self.own = dict(given)
        self.given = bool(given)
        self.makers = _makers(jaxpr)
        self.env = Environment()

    def through(self, values: Sequence[Any]) -> list[Any]:
        return evaluate(self.jaxpr, values, self.rule, env=self.env)

    def rule(self, eqn: core.JaxprEqn, values: list[Any]) -> list[Any]:
        if eqn.primitive.name == "pvary" and self.given:
            return [self.copy(eqn.invars[0], frozenset(eqn.params["axes"]))]
        return _bind_hoisted(eqn, values)

    def copy(self, atom: Any, axes: frozenset[str]) -> Any:
        """A value as each device's own."""
        if isinstance(atom, core.Literal):
            return spread(atom.val, axes)
        if (atom, axes) in self.own:
            return self.own[atom, axes]
        eqn = self.makers.get(atom)
        if (
            eqn is None
            or not is_inexact(atom.aval)
            or not _is_copied_through(eqn, axes)
        ):
            return self.own.setdefault((atom, axes), spread(self.env.read(atom), axes))
        outs = bind(eqn, [self.copy(a, axes) for a in eqn.invars])
        self.own.update(((v, axes), o) for v, o in zip(eqn.outvars, outs, strict=True))
        return self.own[atom, axes]

"""Pass 0: what a loop reads of all devices, each device's own before the loop.

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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.extend import core

from ._activity import closed
from ._code import bind
from ._excerpt import between, variables
from ._rewrite import rewrite
from ._types import spread, struct, varying

_APART = ("shard_map", "retape_call", "retape_linear")
"""What has a sweep of its own."""
Changed = tuple[core.JaxprEqn, list[Any]]


def own_copies(jaxpr: core.ClosedJaxpr) -> core.ClosedJaxpr:
    """The program, whose loops of differing length wait for no other device."""
    if not _has(jaxpr.jaxpr):
        return jaxpr

    def chosen(eqn: core.JaxprEqn) -> bool:
        return _differs(eqn) or eqn.primitive.name in _APART

    return rewrite(jaxpr, chosen, _bound)


def _has(jaxpr: Any) -> bool:
    """Whether there is a loop whose trip count differs between devices."""
    own = [e for e in jaxpr.eqns if e.primitive.name not in _APART]
    inner = (j for e in own for j in core.jaxprs_in_params(e.params))
    return any(map(_differs, own)) or any(map(_has, inner))


def _differs(eqn: core.JaxprEqn) -> bool:
    test = eqn.params.get("cond_jaxpr")
    return test is not None and bool(varying(test.out_avals[0]))


# Equations with programs in them: which operands stay the same inside -----------------


def _bound(eqn: core.JaxprEqn, values: Sequence[Any]) -> list[Any]:
    """Evaluate an equation, its copies in front of it."""
    match eqn.primitive.name:
        case "jit" | "pjit":
            return _through(closed(eqn.params["jaxpr"]), values)
        case "while":
            eqn, values = _while(eqn, values)
        case "scan":
            eqn, values = _scan(eqn, values)
        case "cond":
            eqn, values = _cond(eqn, values)
        case "checkpoint" | "remat2":
            eqn, values = _remat(eqn, values)
        case _:
            pass
    return bind(eqn, list(values))


def _while(eqn: core.JaxprEqn, values: Sequence[Any]) -> Changed:
    first, n = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    body = _split(eqn.params["body_jaxpr"], range(n))
    own = body.taken(values[first:])
    params = {"body_jaxpr": body.rest(n), "body_nconsts": n + len(own)}
    at = first + n
    return _with(eqn, params), [*values[:at], *own, *values[at:]]


def _scan(eqn: core.JaxprEqn, values: Sequence[Any]) -> Changed:
    n, carried = eqn.params["num_consts"], eqn.params["num_carry"]
    body = _split(closed(eqn.params["jaxpr"]), range(n))
    own = body.taken(values)
    values = [*values[:n], *own, *values[n:]]
    # A row of a copy is the copy of a row.
    rows = range(n + len(own) + carried, len(values))
    body = _split(body.rest(n), rows, made=False)
    params = {"jaxpr": body.rest(len(values)), "num_consts": n + len(own)}
    return _with(eqn, params), [*values, *body.taken(values)]


def _cond(eqn: core.JaxprEqn, values: Sequence[Any]) -> Changed:
    index, *given = values
    branches = list(eqn.params["branches"])
    for i, branch in enumerate(branches):
        # What a branch makes may be infinite where the other one is taken.
        arm = _split(branch, range(len(given)), made=False)
        given += arm.taken(given)
        for j, other in enumerate(branches):
            branches[j] = arm.rest(None) if j == i else _widened(other, given)
    return _with(eqn, {"branches": tuple(branches)}), [index, *given]


def _remat(eqn: core.JaxprEqn, values: Sequence[Any]) -> Changed:
    body = _split(core.ClosedJaxpr(eqn.params["jaxpr"], ()), range(len(values)))
    inner = body.rest(None)
    if inner.consts:
        return eqn, list(values)
    return _with(eqn, {"jaxpr": inner.jaxpr}), [*values, *body.taken(values)]


def _with(eqn: core.JaxprEqn, params: dict[str, Any]) -> core.JaxprEqn:
    return eqn.replace(params=eqn.params | params)


def _widened(jaxpr: core.ClosedJaxpr, given: Sequence[Any]) -> core.ClosedJaxpr:
    """The program with more inputs, which it does not read."""
    n = len(jaxpr.in_avals)
    types = [*jaxpr.in_avals, *map(jax.typeof, given[n:])]
    return _traced(lambda *v: core.jaxpr_as_fun(jaxpr)(*v[:n]), types)


def _traced(fun: Callable[..., Any], avals: Sequence[Any]) -> core.ClosedJaxpr:
    return jax.make_jaxpr(fun)(*map(struct, avals))


# Copies ------------------------------------------------------------------------------

Copy = tuple[Any, frozenset[str]]
"""A variable, and the mesh axes along which it is to be each device's own."""


@dataclass(frozen=True, slots=True, eq=False)
class _Split:
    """A program, and the copies that it can be given instead of making them."""

    whole: core.ClosedJaxpr
    same: tuple[int, ...]
    """Positions of the inputs that the copies follow from."""
    copies: tuple[Copy, ...]

    def taken(self, values: Sequence[Any]) -> list[Any]:
        """The copies, from the values of all inputs."""
        given = [self.whole.jaxpr.invars[i] for i in self.same]
        wanted = list(dict.fromkeys(v for v, _ in self.copies))
        made = core.jaxpr_as_fun(between(self.whole, given, wanted))
        found = dict(zip(wanted, made(*(values[i] for i in self.same)), strict=True))
        return [spread(found[v], axes) for v, axes in self.copies]

    def rest(self, at: int | None) -> core.ClosedJaxpr:
        """The program with the copies as inputs: at this position, or behind all."""
        types = self.whole.in_avals
        at = len(types) if at is None else at
        n = len(self.copies)

        def run(*values: Any) -> list[Any]:
            given = dict(zip(self.copies, values[at : at + n], strict=True))
            return _Own(self.whole, given).through([*values[:at], *values[at + n :]])

        own = [_own_type(v.aval, axes) for v, axes in self.copies]
        given = list(map(struct, types))
        return jax.make_jaxpr(run)(*given[:at], *own, *given[at:])


def _own_type(aval: Any, axes: frozenset[str]) -> jax.ShapeDtypeStruct:
    return jax.eval_shape(lambda x: spread(x, axes), struct(aval))


def _split(
    jaxpr: core.ClosedJaxpr, same: Sequence[int], *, made: bool = True
) -> _Split:
    """A program, and the copies of what follows from inputs that stay the same.

    Args:
        jaxpr: The program.
        same: The positions of those inputs.
        made: Whether what is made of them in the program may be made outside.
    """
    whole = _traced(lambda *v: _through(jaxpr, v), jaxpr.in_avals)
    inner = whole.jaxpr
    fixed = {inner.invars[i] for i in same}
    known = {*inner.constvars, *fixed}
    for eqn in inner.eqns if made else ():
        if not eqn.effects and known.issuperset(variables(eqn.invars)):
            known.update(eqn.outvars)
    copies: dict[Copy, None] = {}
    makers = _makers(whole)

    def ask(var: Any, axes: frozenset[str]) -> None:
        if isinstance(var, core.Literal) or not _inexact(var.aval):
            return
        if var in makers and _is_copied_through(makers[var], axes):
            for read in makers[var].invars:
                ask(read, axes)
        elif var in fixed or (var in known and var in makers):
            copies[var, axes] = None

    for eqn in inner.eqns:
        if eqn.primitive.name == "pvary":
            ask(eqn.invars[0], frozenset(eqn.params["axes"]))
    return _Split(whole, tuple(same), tuple(copies))


def _makers(jaxpr: core.ClosedJaxpr) -> dict[Any, core.JaxprEqn]:
    return {v: e for e in jaxpr.eqns for v in e.outvars}


def _is_copied_through(eqn: core.JaxprEqn, axes: frozenset[str]) -> bool:
    """Whether an equation makes of copies the copy of what it makes."""
    return (
        not eqn.effects
        and not list(core.jaxprs_in_params(eqn.params))
        and not any(callable(p) for p in eqn.params.values())
        and not any(varying(a.aval) & axes for a in (*eqn.invars, *eqn.outvars))
        and eqn.primitive.name != "pvary"
    )


def _inexact(aval: Any) -> bool:
    return jax.dtypes.issubdtype(aval.dtype, np.inexact)


def _through(jaxpr: core.ClosedJaxpr, values: Sequence[Any]) -> list[Any]:
    """Evaluate a program, every loop in it with its copies in front of it."""
    return _Own(jaxpr, {}).through(values)


class _Own:
    """Evaluation of a program, its copies made of copies that are given."""

    def __init__(self, jaxpr: core.ClosedJaxpr, given: dict[Copy, Any]) -> None:
        self.jaxpr = jaxpr
        self.own = dict(given)
        self.given = bool(given)
        self.makers = _makers(jaxpr)
        self.env: dict[Any, Any] = {}

    def through(self, values: Sequence[Any]) -> list[Any]:
        inner = self.jaxpr.jaxpr
        self.env.update(zip(inner.constvars, self.jaxpr.consts, strict=True))
        self.env.update(zip(inner.invars, values, strict=True))
        for eqn in inner.eqns:
            if eqn.primitive.name == "pvary" and self.given:
                outs = [self.copy(eqn.invars[0], frozenset(eqn.params["axes"]))]
            else:
                outs = _bound(eqn, [self.read(a) for a in eqn.invars])
            self.env.update(zip(eqn.outvars, outs, strict=True))
        return [self.read(a) for a in inner.outvars]

    def read(self, atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else self.env[atom]

    def copy(self, atom: Any, axes: frozenset[str]) -> Any:
        """A value as each device's own."""
        if isinstance(atom, core.Literal):
            return spread(atom.val, axes)
        if (atom, axes) in self.own:
            return self.own[atom, axes]
        eqn = self.makers.get(atom)
        if eqn is None or not _inexact(atom.aval) or not _is_copied_through(eqn, axes):
            return self.own.setdefault((atom, axes), spread(self.env[atom], axes))
        outs = bind(eqn, [self.copy(a, axes) for a in eqn.invars])
        self.own.update(((v, axes), o) for v, o in zip(eqn.outvars, outs, strict=True))
        return self.own[atom, axes]

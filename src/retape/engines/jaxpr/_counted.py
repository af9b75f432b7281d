"""Pass 0: a `while` whose trip count is proved becomes a `scan`.

Before:

    i, c = while[cond= i < 7, body= i + 1, f(c)] 0 c

After:

    i, c = scan[length=7, body= i + 1, f(c)] 0 c

A `scan` has a derivative in JAX, so a small one stays one operation inside a step; a
`while` would be opened, and steps would begin inside it, where much more is live than
at the head of the loop around it. If only a bound is proved and it is small, the trips
that are sure become a `scan`, and each of the others a `cond`:

    i, c = while[cond= (i < 7) & (err > tol), ...] i c      with i in 0..1

    i, c = scan[length=...];   i, c = cond[(i < 7) & (err > tol)](body, unchanged)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax import lax
from jax.extend import core

from ._activity import (
    closed,
    opens_inside,
    outputs,
    propagate,
    scan_carry,
    tape_bytes,
    while_carry,
)
from ._code import bind
from ._interpret import Known
from ._intervals import Value, anything
from ._private import as_written
from ._trips import Trips, trips
from ._types import struct

_UNSURE = 16
"""Trips that need not happen, and yet are laid out: each costs a `cond`, taken or not,
and room on the tape."""

_LONGEST = 2**31 - 1
"""A `scan` is counted in 32 bits."""

_BODIES = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
    "retape_call": "jaxpr",
    "retape_linear": "jaxpr",
}

Replacement = Callable[[list[Any]], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Limits:
    """When unsure trips are laid out.

    Attributes:
        grain: Only if the residuals of all trips take no more bytes.
        left: Loops that may do no more than write rows are left, and noted here; or
            laid out, too, if it is `None`.
    """

    grain: int
    left: list[Any] | None = None


def count_loops(
    jaxpr: core.ClosedJaxpr,
    active: Sequence[bool],
    limits: Limits,
    known: Sequence[Value] | None = None,
) -> core.ClosedJaxpr:
    """The same program, its loops of proved length as `scan`s.

    Args:
        jaxpr: The program.
        active: For each input, whether a derivative by it is wanted.
        limits: When a loop is unrolled into unsure trips.
        known: What is known about the inputs.
    """
    inner = jaxpr.jaxpr
    env = Known(jaxpr, known or [anything(v.aval) for v in inner.invars])
    moves = dict(zip(inner.invars, active, strict=True))
    changed: dict[int, Replacement] = {}
    for i, eqn in enumerate(inner.eqns):
        flags = [
            not isinstance(a, core.Literal) and moves.get(a, False) for a in eqn.invars
        ]
        outs = outputs(eqn, flags)
        if any(outs) and not eqn.effects:
            new = _replaced(eqn, flags, [env.read(a) for a in eqn.invars], limits)
            if new is not None:
                changed[i] = new
        env.learn(eqn)
        moves.update(zip(eqn.outvars, outs, strict=True))
    return _with(jaxpr, changed) if changed else jaxpr


def _with(jaxpr: core.ClosedJaxpr, changed: dict[int, Replacement]) -> core.ClosedJaxpr:
    """The jaxpr with some of its equations replaced."""
    inner = jaxpr.jaxpr

    def run(*values: Any) -> list[Any]:
        env = dict(zip(inner.constvars, jaxpr.consts, strict=True))
        env.update(zip(inner.invars, values, strict=True))

        def read(atom: Any) -> Any:
            return atom.val if isinstance(atom, core.Literal) else env[atom]

        for i, eqn in enumerate(inner.eqns):
            ins = [read(a) for a in eqn.invars]
            if i in changed:
                with as_written(eqn), eqn.ctx.manager:
                    outs = changed[i](ins)
            else:
                outs = bind(eqn, ins)
            env.update(zip(eqn.outvars, outs, strict=True))
        return [read(a) for a in inner.outvars]

    structs = [struct(v.aval) for v in inner.invars]
    return jax.make_jaxpr(run)(*structs)


def _replaced(
    eqn: Any, active: Sequence[bool], known: Sequence[Value], limits: Limits
) -> Replacement | None:
    """What stands in the place of an equation; `None` if it stays."""
    name = eqn.primitive.name
    if name == "while":
        return _while(eqn, active, known, limits)
    if name == "scan":
        nc, nk = eqn.params["num_consts"], eqn.params["num_carry"]
        carry, _ = scan_carry(eqn.params, active)
        flags = [*active[:nc], *carry, *active[nc + nk :]]
        return _body(eqn, "jaxpr", flags, known[:nc], limits)
    if name == "cond":
        arms = eqn.params["branches"]
        new = tuple(count_loops(b, active[1:], limits, known=known[1:]) for b in arms)
        same = all(a is b for a, b in zip(arms, new, strict=True))
        return None if same else _bound(eqn, branches=new)
    if name in _BODIES:
        return _body(eqn, _BODIES[name], active, known, limits)
    return None


def _body(
    eqn: Any, key: str, active: Sequence[bool], known: Sequence[Value], limits: Limits
) -> Replacement | None:
    """An equation with another body; of the last inputs of which nothing is known."""
    old = closed(eqn.params[key])
    rest = [anything(v.aval) for v in old.jaxpr.invars[len(known) :]]
    new = count_loops(old, active, limits, known=[*known, *rest])
    if new is old:
        return None
    if isinstance(eqn.params[key], core.ClosedJaxpr):
        return _bound(eqn, **{key: new})
    return None if new.consts else _bound(eqn, **{key: new.jaxpr})


def _bound(eqn: Any, **params: Any) -> Replacement:
    changed = eqn.replace(params=eqn.params | params)
    return lambda ins: bind(changed, ins)


def _while(
    eqn: Any, active: Sequence[bool], known: Sequence[Value], limits: Limits
) -> Replacement | None:
    p = eqn.params
    nc, nb = p["cond_nconsts"], p["body_nconsts"]
    flags = [*active[nc : nc + nb], *while_carry(p, active)]
    old = p["body_jaxpr"]
    rest = [anything(v.aval) for v in eqn.outvars]
    body = count_loops(old, flags, limits, known=[*known[nc : nc + nb], *rest])
    found = trips(eqn, known)
    if not _worth_it(found, body, flags, limits):
        return None if body is old else _bound(eqn, body_jaxpr=body)
    cond, turn = core.jaxpr_as_fun(p["cond_jaxpr"]), core.jaxpr_as_fun(body)

    def counted(ins: list[Any]) -> Sequence[Any]:
        cond_consts, body_consts = ins[:nc], ins[nc : nc + nb]

        def sure(carry: Sequence[Any]) -> Sequence[Any]:
            return turn(*body_consts, *carry)

        def unsure(carry: Sequence[Any]) -> Sequence[Any]:
            (more,) = cond(*cond_consts, *carry)
            return lax.cond(more, sure, list, carry)

        assert found.most is not None
        carry = _repeat(sure, found.least, ins[nc + nb :])
        return _repeat(unsure, found.most - found.least, carry)

    return counted


def _worth_it(
    found: Trips, body: core.ClosedJaxpr, active: Sequence[bool], limits: Limits
) -> bool:
    """Whether to lay the trips out: always if their number is known."""
    if found.most is None or found.most > _LONGEST:
        return False
    if found.least == found.most:
        return True
    return (
        found.most - found.least <= _UNSURE
        and found.most * tape_bytes(body, active) <= limits.grain
        and not opens_inside(body, active, limits.grain)
        and not _is_left(body, active, limits)
    )


def _is_left(body: core.ClosedJaxpr, active: Sequence[bool], limits: Limits) -> bool:
    if limits.left is None or not _may_write_rows(body, active):
        return False
    limits.left.append(body)
    return True


def _may_write_rows(body: core.ClosedJaxpr, active: Sequence[bool]) -> bool:
    """Whether no derivative goes from one trip to another, but for arrays handed on.

    Where that is not all, `_absorb` will not take the loop.
    """
    skip = len(active) - len(body.out_avals)
    for i, aval in enumerate(body.out_avals):
        if active[skip + i]:
            alone = [k == skip + i for k in range(len(active))]
            reached = propagate(body, alone)
            if not aval.shape or any(r != (k == i) for k, r in enumerate(reached)):
                return False
    return True


def _repeat(
    turn: Callable[[Sequence[Any]], Sequence[Any]], times: int, carry: Sequence[Any]
) -> Sequence[Any]:
    if times == 0:
        return carry
    if times == 1:
        return turn(carry)

    def step(carry: list[Any], _: None) -> tuple[list[Any], None]:
        return list(turn(carry)), None

    return lax.scan(step, list(carry), None, length=times)[0]

"""Turn a `while` whose trip count is proved into a `scan`.

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

from retape.engines.jaxpr.analysis._activity import (
    flow,
    opens_inside,
    propagate,
    scan_carry,
    tape_bytes,
    while_carry,
)
from retape.engines.jaxpr.analysis._known_values import Known, Possible, anything
from retape.engines.jaxpr.analysis._short_loops import cheaper_stored
from retape.engines.jaxpr.analysis._trip_count import Trips, trip_bounds
from retape.engines.jaxpr.jaxprs._avals import struct
from retape.engines.jaxpr.jaxprs._evaluate import bind, evaluate
from retape.engines.jaxpr.jaxprs._jax_internals import as_written, scan_parts
from retape.engines.jaxpr.jaxprs._primitive_table import traits
from retape.engines.jaxpr.jaxprs._subprogram import closed

_UNSURE = 16
"""Trips that need not happen, and yet are laid out: each costs a `cond`, taken or not,
and room on the tape."""

_LONGEST = 2**31 - 1
"""A `scan` is counted in 32 bits."""

Replacement = Callable[[list[Any]], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Limits:
    """When unsure trips are laid out.

    Attributes:
        grain: Only if the residuals of all trips take no more bytes, or it takes as
            much to reverse them from within.
        left: Loops that may do no more than write rows are left, and noted here; or
            laid out, too, if it is `None`.
    """

    grain: int
    left: list[Any] | None = None


def while_to_scan(
    jaxpr: core.ClosedJaxpr,
    active: Sequence[bool],
    limits: Limits,
    known: Sequence[Possible] | None = None,
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
    changed: dict[int, Replacement] = {}
    for eqn, flags, outs in flow(jaxpr, active):
        if any(outs) and not eqn.effects:
            new = _replaced(eqn, flags, [env.read(a) for a in eqn.invars], limits)
            if new is not None:
                changed[id(eqn)] = new
        env.learn(eqn)
    return _with_replaced(jaxpr, changed) if changed else jaxpr


def _with_replaced(
    jaxpr: core.ClosedJaxpr, changed: dict[int, Replacement]
) -> core.ClosedJaxpr:
    """The jaxpr with some of its equations, known by identity, replaced."""

    def rule(eqn: core.JaxprEqn, ins: list[Any]) -> Sequence[Any]:
        new = changed.get(id(eqn))
        if new is None:
            return bind(eqn, ins)
        with as_written(eqn), eqn.ctx.manager:
            return new(ins)

    def run(*values: Any) -> list[Any]:
        return evaluate(jaxpr, values, rule)

    return jax.make_jaxpr(run)(*map(struct, jaxpr.in_avals))


def _replaced(
    eqn: Any, active: Sequence[bool], known: Sequence[Possible], limits: Limits
) -> Replacement | None:
    """The replacement of an equation; `None` if it stays."""
    name = eqn.primitive.name
    if name == "while":
        return _rewrite_while(eqn, active, known, limits)
    if name == "scan":
        nc, nk = scan_parts(eqn.params)
        carry, _ = scan_carry(eqn.params, active)
        flags = [*active[:nc], *carry, *active[nc + nk :]]
        return _with_body(eqn, "jaxpr", flags, known[:nc], limits)
    if name == "cond":
        arms = eqn.params["branches"]
        new = tuple(while_to_scan(b, active[1:], limits, known=known[1:]) for b in arms)
        same = all(a is b for a, b in zip(arms, new, strict=True))
        return None if same else _bind_params(eqn, branches=new)
    key = traits(eqn).body
    # The body of a custom rule is not what is differentiated.
    if key is None or name == "custom_jvp_call":
        return None
    return _with_body(eqn, key, active, known, limits)


def _with_body(
    eqn: Any,
    key: str,
    active: Sequence[bool],
    known: Sequence[Possible],
    limits: Limits,
) -> Replacement | None:
    """An equation with another body; of the last inputs of which nothing is known."""
    old = closed(eqn.params[key])
    rest = [anything(v.aval) for v in old.jaxpr.invars[len(known) :]]
    new = while_to_scan(old, active, limits, known=[*known, *rest])
    if new is old:
        return None
    if isinstance(eqn.params[key], core.ClosedJaxpr):
        return _bind_params(eqn, **{key: new})
    return None if new.consts else _bind_params(eqn, **{key: new.jaxpr})


def _bind_params(eqn: Any, **params: Any) -> Replacement:
    changed = eqn.replace(params=eqn.params | params)
    return lambda ins: bind(changed, ins)


def _rewrite_while(
    eqn: Any, active: Sequence[bool], known: Sequence[Possible], limits: Limits
) -> Replacement | None:
    p = eqn.params
    nc, nb = p["cond_nconsts"], p["body_nconsts"]
    flags = [*active[nc : nc + nb], *while_carry(p, active)]
    old = p["body_jaxpr"]
    rest = [anything(v.aval) for v in eqn.outvars]
    body = while_to_scan(old, flags, limits, known=[*known[nc : nc + nb], *rest])
    found = trip_bounds(eqn, known)
    if not _pays(found, body, flags, limits):
        return None if body is old else _bind_params(eqn, body_jaxpr=body)
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


def _pays(
    found: Trips, body: core.ClosedJaxpr, active: Sequence[bool], limits: Limits
) -> bool:
    """Tell whether to lay the trips out: always if their number is known."""
    if found.most is None or found.most > _LONGEST:
        return False
    if found.least == found.most:
        return True
    return (
        found.most - found.least <= _UNSURE
        and not opens_inside(body, active, limits.grain)
        and _stores_little(found.most, body, active, limits.grain)
        and not _is_left(body, active, limits)
    )


def _stores_little(
    most: int, body: core.ClosedJaxpr, active: Sequence[bool], grain: int
) -> bool:
    """Tell whether to store the residuals of all trips rather than open the loop."""
    if most * tape_bytes(body, active) <= grain:
        return True
    carried = slice(len(active) - len(body.out_avals), None)
    return bool(grain) and cheaper_stored(body, active, carried, most)


def _is_left(body: core.ClosedJaxpr, active: Sequence[bool], limits: Limits) -> bool:
    if limits.left is None or not _may_write_rows(body, active):
        return False
    limits.left.append(body)
    return True


def _may_write_rows(body: core.ClosedJaxpr, active: Sequence[bool]) -> bool:
    """True if no derivative goes from one trip to another, but for arrays handed on.

    Where that is not all, `streams/_fuse_row_loops` will not take the loop.
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

"""What a policy keeps of a program, inside loops and branches too.

A `scan` is one operation of a marked function, and what a policy saves may be made in
its body. So such a program is evaluated twice over. Before the mark every loop hands
out what is kept of each trip, and every branch what is kept of it; inside the mark the
loops go through that again, beside what they scan over:

    kept:    y, hs = scan[c -> (sin(h), h) with h = c @ w] x
    marked:  y = scan[c, h -> sin(h in the place of c @ w)] x hs
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
from jax import lax
from jax.extend import core

from retape._errors import PlanError
from retape.engines.jaxpr.jaxprs._avals import blank, struct
from retape.engines.jaxpr.jaxprs._evaluate import begun, bind
from retape.engines.jaxpr.jaxprs._jax_internals import jaxprs_in_params, scan_parts
from retape.engines.jaxpr.jaxprs._primitive_table import Also, is_a
from retape.engines.jaxpr.jaxprs._subprogram import closed
from retape.engines.jaxpr.layers.remat._policy import Policy
from retape.engines.jaxpr.primitives._with_primal import with_primal

_ANSWERS = ("Offloadable", "RecomputeType", "SaveableType")
"""JAX's classes, an instance of which a policy may answer, beside a truth value."""

Held = list[Any] | None
"""What was kept of each operation, in order; `None` while it is being made."""


class Saves(NamedTuple):
    """What a policy keeps of a program."""

    made: frozenset[Any] = frozenset()
    """Results of its own operations."""
    inside: tuple[tuple[int, tuple[Saves, ...]], ...] = ()
    """Numbers of operations, and what is kept of each program that they hold."""
    offloads: bool = False
    """Whether some of it is to be moved to the host."""

    @property
    def any(self) -> bool:
        """Whether something is kept."""
        return bool(self.made or self.inside)


def saves_of(jaxpr: core.Jaxpr, policy: Policy | None) -> Saves:
    """What a policy keeps; loops and branches are asked about by what is in them.

    Raises:
        PlanError: If the policy answers with something else than an answer.
    """
    made: set[Any] = set()
    inside: list[tuple[int, tuple[Saves, ...]]] = []
    offloads = False
    if policy is None:
        return Saves()
    for number, eqn in enumerate(jaxpr.eqns):
        answer = policy(eqn.primitive, *(a.aval for a in eqn.invars), **eqn.params)
        kind = type(answer).__name__
        if not isinstance(answer, bool) and kind not in _ANSWERS:
            raise PlanError(
                f"A policy answered `{answer!r}` about the operation "
                f"`{eqn.primitive.name}`, which says neither that its result is saved "
                "nor that it is not. Return `True` or `False`."
            )
        offloads |= kind == "Offloadable"
        if answer is True or kind == "SaveableType":
            made.update(eqn.outvars)
        bodies = tuple(saves_of(body.jaxpr, policy) for body in _asked_inside(eqn))
        offloads |= any(each.offloads for each in bodies)
        if any(each.any for each in bodies):
            inside.append((number, bodies))
    return Saves(frozenset(made), tuple(inside), offloads)


def _asked_inside(eqn: core.JaxprEqn) -> list[core.ClosedJaxpr]:
    """The programs in an operation that a policy is asked about one by one."""
    if eqn.primitive.name in ("scan", "cond") or is_a(eqn, Also.INLINE):
        return list(map(closed, jaxprs_in_params(eqn.params)))
    return []


def through_held(
    program: core.ClosedJaxpr, args: Sequence[Any], saves: Saves, held: Held
) -> tuple[list[Any], list[Any]]:
    """The results of a program, and what is kept of it unless that is held already."""
    env, kept = begun(program, args), []
    rest = None if held is None else iter(held)
    inside = dict(saves.inside)
    for number, eqn in enumerate(program.jaxpr.eqns):
        ins = env.read_all(eqn.invars)
        if number in inside:
            mine = None if rest is None else next(rest)
            outs, more = _deeper(eqn, ins, inside[number], mine)
            kept.append(more)
        else:
            outs = bind(eqn, ins)
        for at, v in enumerate(eqn.outvars):
            if v not in saves.made:
                continue
            if rest is None:
                kept.append(outs[at])
            else:
                outs[at] = with_primal(outs[at], next(rest))
        env.write(eqn.outvars, outs)
    return env.read_all(program.jaxpr.outvars), kept


def _deeper(
    eqn: core.JaxprEqn, ins: list[Any], bodies: Sequence[Saves], held: Held
) -> tuple[list[Any], list[Any]]:
    programs = _asked_inside(eqn)
    match eqn.primitive.name:
        case "scan":
            return _scan(eqn, programs[0], ins, bodies[0], held)
        case "cond":
            return _cond(programs, ins, bodies, held)
        case _:
            return through_held(programs[0], ins, bodies[0], held)


def _scan(
    eqn: core.JaxprEqn,
    program: core.ClosedJaxpr,
    ins: list[Any],
    saves: Saves,
    held: Held,
) -> tuple[list[Any], list[Any]]:
    consts, carries = scan_parts(eqn.params)
    fixed, init, xs = ins[:consts], ins[consts:][:carries], ins[consts + carries :]

    def body(carry: Any, row: Any) -> Any:
        rows, mine = row
        outs, kept = through_held(program, [*fixed, *carry, *rows], saves, mine)
        return outs[:carries], (outs[carries:], kept)

    how = {name: eqn.params[name] for name in ("length", "reverse", "unroll")}
    carry, (ys, kept) = lax.scan(body, init, (xs, held), **how)
    return [*carry, *ys], kept


def _cond(
    programs: Sequence[core.ClosedJaxpr],
    ins: list[Any],
    bodies: Sequence[Saves],
    held: Held,
) -> tuple[list[Any], list[Any]]:
    index, *args = ins
    pairs = list(zip(programs, bodies, strict=True))
    types = [_types(*pair) for pair in pairs]

    def branch(number: int) -> Any:
        def run(args: list[Any], held: Held) -> Any:
            mine = None if held is None else held[number]
            outs, kept = through_held(programs[number], args, bodies[number], mine)
            if held is not None:
                return outs, []
            # Each branch hands out zeros for what is kept of the others.
            every = [jax.tree.map(blank, each) for each in types]
            every[number] = kept
            return outs, every

        return run

    return lax.switch(index, list(map(branch, range(len(programs)))), args, held)


def _types(program: core.ClosedJaxpr, saves: Saves) -> list[Any]:
    """The types of what is kept of a program."""
    run = lambda *args: through_held(program, args, saves, None)[1]  # noqa: E731
    structs = map(struct, program.in_avals)
    made, shape = jax.make_jaxpr(run, return_shape=True)(*structs)
    return jax.tree.unflatten(jax.tree.structure(shape), made.out_avals)

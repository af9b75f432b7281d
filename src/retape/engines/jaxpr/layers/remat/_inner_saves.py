"""What a policy keeps inside loops and branches, as `jax.checkpoint` keeps it.

A `scan` is one operation of a marked function, and what a policy saves may be made in
its body. So the function is evaluated twice over. Before the mark every loop hands out
what is kept of each trip, and every branch what is kept of it; inside the mark the
loops go through that again, beside what they scan over:

    kept:    y, hs = scan[c -> (sin(h), h) with h = c @ w] x
    marked:  y = scan[c, h -> sin(h in the place of c @ w)] x hs
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
from jax import lax
from jax.extend import core

from retape.engines.jaxpr.calls._rerun import Rerun
from retape.engines.jaxpr.calls._rules import call
from retape.engines.jaxpr.jaxprs._avals import blank, struct
from retape.engines.jaxpr.jaxprs._evaluate import begun, bind
from retape.engines.jaxpr.jaxprs._jax_internals import jaxprs_in_params, scan_parts
from retape.engines.jaxpr.jaxprs._primitive_table import Also, is_a
from retape.engines.jaxpr.jaxprs._structural_equality import deduplicate
from retape.engines.jaxpr.jaxprs._subprogram import closed
from retape.engines.jaxpr.layers.remat._flat_program import Graph
from retape.engines.jaxpr.layers.remat._policy import Policy
from retape.engines.jaxpr.primitives._with_primal import with_primal


class Saves(NamedTuple):
    """What a policy keeps of a program."""

    made: frozenset[Any]
    """Results of its own operations."""
    inside: dict[int, list[Saves]]
    """By the number of an operation: what is kept of each program that it holds."""
    offloads: bool
    """Whether some of it is to be moved to the host."""

    def total(self) -> int:
        """How many values that are."""
        deeper = (each.total() for bodies in self.inside.values() for each in bodies)
        return len(self.made) + sum(deeper)


def saves_of(jaxpr: core.Jaxpr, policy: Policy | None) -> Saves:
    """What a policy keeps; loops and branches are asked about by what is in them."""
    made: set[Any] = set()
    inside: dict[int, list[Saves]] = {}
    offloads = False
    if policy is None:
        return Saves(frozenset(), inside, offloads)
    for number, eqn in enumerate(jaxpr.eqns):
        answer = policy(eqn.primitive, *(a.aval for a in eqn.invars), **eqn.params)
        # A policy answers with a truth value, or an instance of one of JAX's classes.
        kind = type(answer).__name__
        offloads |= kind == "Offloadable"
        if kind not in ("Offloadable", "RecomputeType") and answer:
            made.update(eqn.outvars)
        bodies = [saves_of(body.jaxpr, policy) for body in _asked_inside(eqn)]
        offloads |= any(each.offloads for each in bodies)
        if any(each.made or each.inside for each in bodies):
            inside[number] = bodies
    return Saves(frozenset(made), inside, offloads)


def run_saving(graph: Graph, saves: Saves, values: Sequence[Any]) -> list[Any]:
    """Evaluate a graph, marked, but for what is kept of it."""
    program, n = core.ClosedJaxpr(graph.jaxpr, ()), len(values)
    outs, kept = _through_held(
        program, list(map(lax.stop_gradient, values)), saves, None
    )

    def again(*given: Any) -> list[Any]:
        return _through_held(program, given[:n], saves, given[n:])[0]

    given = [*values, *kept]
    whole = jax.make_jaxpr(again)(*(struct(jax.typeof(v)) for v in given))
    marked = call(deduplicate(whole), Rerun(), given)
    # The value is there already: of the marked call nothing but derivatives is taken.
    return list(map(with_primal, marked, outs))


def _asked_inside(eqn: core.JaxprEqn) -> list[core.ClosedJaxpr]:
    """The programs in an operation that a policy is asked about one by one."""
    if eqn.primitive.name in ("scan", "cond") or is_a(eqn, Also.INLINE):
        return list(map(closed, jaxprs_in_params(eqn.params)))
    return []


Held = Sequence[Any] | None
"""What was kept, in order; `None` while it is being made."""


def _through_held(
    program: core.ClosedJaxpr, args: Sequence[Any], saves: Saves, held: Held
) -> tuple[list[Any], list[Any]]:
    """The results of a program, and what is kept of it unless that is held already."""
    env, kept = begun(program, args), []
    rest = None if held is None else iter(held)
    for number, eqn in enumerate(program.jaxpr.eqns):
        ins = env.read_all(eqn.invars)
        bodies = saves.inside.get(number)
        if bodies is None:
            outs = bind(eqn, ins)
        else:
            outs, more = _deeper(eqn, ins, bodies, _share_of(rest, bodies))
            kept += more
        for at, v in enumerate(eqn.outvars):
            if v not in saves.made:
                continue
            if rest is None:
                kept.append(outs[at])
            else:
                outs[at] = with_primal(outs[at], next(rest))
        env.write(eqn.outvars, outs)
    return env.read_all(program.jaxpr.outvars), kept


def _share_of(rest: Iterator[Any] | None, bodies: Sequence[Saves]) -> Held:
    count = sum(each.total() for each in bodies)
    return None if rest is None else [next(rest) for _ in range(count)]


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
            return _through_held(programs[0], ins, bodies[0], held)


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
        outs, kept = _through_held(program, [*fixed, *carry, *rows], saves, mine)
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
    # Each branch hands out zeros for what is kept of the others.
    types = [_types(p, s) for p, s in zip(programs, bodies, strict=True)]

    def branch(number: int) -> Any:
        before = sum(map(len, types[:number]))
        behind = before + len(types[number])

        def run(args: list[Any], held: Held) -> Any:
            mine = None if held is None else held[before:behind]
            outs, kept = _through_held(programs[number], args, bodies[number], mine)
            if held is not None:
                return outs, []
            empty = [blank(aval) for each in types for aval in each]
            return outs, [*empty[:before], *kept, *empty[behind:]]

        return run

    return lax.switch(index, list(map(branch, range(len(programs)))), args, held)


def _types(program: core.ClosedJaxpr, saves: Saves) -> list[Any]:
    run = lambda *args: _through_held(program, args, saves, None)[1]  # noqa: E731
    return jax.make_jaxpr(run)(*map(struct, program.in_avals)).out_avals

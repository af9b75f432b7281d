"""Lower a closed jaxpr to blocks.

Before, one nested equation:

    c:f64[] = while[cond=..., body=...] 0.0 x

After (the loop is rotated: its test stands before it and again at its end, so that
one iteration is one step):

    L0:  moves c <- x          next: test(x) ? L1 : L2
    L1:  y = body(c)           moves c <- y   next: test(y) ? L1 : L2      (a loop)
    L2:  ...                   next: end

Only what must be reversible inside is opened (see `_activity.must_open`); all else
stays one operation of a block, with its own derivative rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from retape.engines.jaxpr.analysis._activity import (
    must_open,
    opens_inside,
    outputs,
    scan_carry,
    while_carry,
)
from retape.engines.jaxpr.analysis._opaque_primitives import passed_through
from retape.engines.jaxpr.ir._builder import Blocks, LoopShape, Row
from retape.engines.jaxpr.ir._ir import (
    Atom,
    Aval,
    Label,
    Lit,
    Position,
    Program,
    Var,
    Write,
    run_length,
)
from retape.engines.jaxpr.ir._operations import through
from retape.engines.jaxpr.jaxprs._avals import blank, struct
from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.jaxprs._jax_internals import scan_parts
from retape.engines.jaxpr.jaxprs._primitive_table import Also, callee, is_a
from retape.engines.jaxpr.jaxprs._subprogram import closed
from retape.engines.jaxpr.lower._batched_while import While, harmless, standing
from retape.engines.jaxpr.lower._divergent_loops import refuse_waiting
from retape.engines.jaxpr.primitives._cotangent_gate import is_gated


def lower_jaxpr(
    jaxpr: core.ClosedJaxpr, active: Sequence[bool], *, grain: int
) -> tuple[Program, list[Any]]:
    """The blocks of `jaxpr`, and the values of the constants among its operands.

    Args:
        jaxpr: The program. Its constants become operands behind its inputs.
        active: For each input, whether a derivative by it is wanted.
        grain: A scan whose residuals exceed so many bytes is opened.

    Raises:
        UnsupportedError: If devices would wait for one another for ever.
    """
    inputs = [Var(v.aval, a) for v, a in zip(jaxpr.jaxpr.invars, active, strict=True)]
    flat = _Flattener(grain)
    blocks = flat.blocks
    consts = [
        blocks.constant(c, v.aval)
        for v, c in zip(jaxpr.jaxpr.constvars, jaxpr.consts, strict=True)
    ]
    blocks.operands.update(inputs)
    outs = flat.body(jaxpr.jaxpr, consts, inputs)
    outs = [blocks.here(o) for o in outs]
    blocks.jump(None)
    operands = (*inputs, *blocks.constants)
    program = Program(operands, blocks.items, tuple(outs), run_length(blocks.items))
    refuse_waiting(program)
    return program, list(blocks.constants.values())


class _Flattener:
    """Writes the blocks of equations, one after the other."""

    def __init__(self, grain: int) -> None:
        self.grain = grain
        self.blocks = Blocks()

    # Code --------------------------------------------------------------------

    def body(self, jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
        """Write the equations of a jaxpr; returns the values of its outputs."""
        return through(jaxpr, consts, args, self.equation)

    def inline(self, jaxpr: Any, args: Sequence[Any]) -> list[Any]:
        """Write a closed jaxpr in place of a call of it."""
        pairs = zip(jaxpr.jaxpr.constvars, jaxpr.consts, strict=True)
        consts = [self.blocks.constant(c, v.aval) for v, c in pairs]
        return self.body(jaxpr.jaxpr, consts, args)

    def emit(self, fun: Callable[..., Any], ins: Sequence[Any]) -> list[Any]:
        """Write code of our own, beside the user's."""
        made = jax.make_jaxpr(fun)(*(struct(a.aval) for a in ins))
        return self.inline(made, ins)

    def equation(self, eqn: Any, ins: list[Any]) -> list[Any]:
        active = [not isinstance(a, Lit) and a.active for a in ins]
        if is_a(eqn, Also.JIT):
            # A `jit` inside a traced program is no more than a name for its body.
            return self.inline(closed(eqn.params["jaxpr"]), ins)
        same = passed_through(eqn, active)
        if same is not None and outputs(eqn, active) == [active[same]]:
            return [ins[same]]
        if not must_open(eqn, active, self.grain):
            return self.blocks.operation(eqn, ins, active)
        whole = keep_map(eqn, active, self.grain) if self.blocks.in_loop else None
        if whole is not None:
            return self.blocks.operation(whole, ins, active)
        match eqn.primitive.name:
            case "while":
                return self.while_(eqn, ins, active)
            case "scan":
                return self.scan(eqn, ins, active)
            case "cond":
                return self.cond(eqn, ins, active)
            case _:
                body = callee(eqn)
                assert body is not None
                return self.inline(body, ins)

    # Loops and branches -------------------------------------------------------

    def while_(self, eqn: Any, ins: list[Any], active: list[bool]) -> list[Var]:
        p = eqn.params
        cn, bn = p["cond_nconsts"], p["body_nconsts"]
        cond_consts, body_consts, init = ins[:cn], ins[cn : cn + bn], ins[cn + bn :]
        flags = while_carry(p, active)
        carry = [Var(v.aval, a) for v, a in zip(eqn.outvars, flags, strict=True)]

        def test(values: Sequence[Any]) -> Atom:
            (going,) = self.inline(p["cond_jaxpr"], [*cond_consts, *values])
            return self.blocks.here(going)

        def body(values: Sequence[Any]) -> list[Any]:
            return self.inline(p["body_jaxpr"], [*body_consts, *values])

        (lanes,) = p["cond_jaxpr"].out_avals
        loop = While(carry, init, test, body)
        values = [*active[cn : cn + bn], *flags]
        if not lanes.shape:
            turns = LoopShape(carry, init, test(init), loop.turn)
        elif is_gated(p["body_jaxpr"].jaxpr, values, lanes.shape):
            turns = standing(loop, self.emit)
        elif any(active[cn : cn + bn]):
            turns = harmless(loop, self.emit)
        else:
            turns = standing(loop, self.emit, gated=True)
        self.blocks.loop(turns, None)
        return carry

    def scan(self, eqn: Any, ins: list[Any], active: list[bool]) -> list[Any]:
        p, blocks = eqn.params, self.blocks
        (nc, nk), length = scan_parts(p), p["length"]
        consts, init = ins[:nc], ins[nc : nc + nk]
        # A row that this scan goes through in turn is read whole, before the loop.
        xs = [blocks.here(x) if isinstance(x, Row) else x for x in ins[nc + nk :]]
        carry_on, ys_on = scan_carry(p, active)
        ys = [Var(v.aval, a) for v, a in zip(eqn.outvars[nk:], ys_on, strict=True)]
        if length == 0:
            return [*init, *map(self.blank, ys)]
        carry = [
            Var(v.aval, a) for v, a in zip(eqn.outvars[:nk], carry_on, strict=True)
        ]
        body = closed(p["jaxpr"])
        slots = body.jaxpr.invars[nc + nk :]
        count = Var(Aval((), np.dtype(np.int32)))
        at = Position(count, length, p["reverse"])

        def turn() -> tuple[list[Any], Atom]:
            rows = [_row(x, at, v.aval) for x, v in zip(xs, slots, strict=True)]
            outs = self.inline(body, [*consts, *carry, *rows])
            for stream, y in zip(ys, outs[nk:], strict=True):
                blocks.block.writes.append(Write(stream, at, blocks.here(y)))
            following, again = self.inline(_counting(length), [count])
            return [*outs[:nk], following], again

        zero = Lit(np.int32(0), count.aval)
        blocks.assign(ys, list(map(self.blank, ys)))
        blocks.loop(LoopShape([*carry, count], [*init, zero], None, turn), length)
        return [*carry, *ys]

    def blank(self, var: Var) -> Atom:
        """An array of zeros of a variable's type."""
        return self.inline(_blank_of(var.aval), [])[0]

    def cond(self, eqn: Any, ins: list[Any], active: list[bool]) -> list[Var]:
        index, *args = ins
        flags = outputs(eqn, active)
        outs = [Var(v.aval, a) for v, a in zip(eqn.outvars, flags, strict=True)]
        arms = [Label() for _ in eqn.params["branches"]]
        join = Label()
        self.blocks.jump(index, *arms)
        for label, branch in zip(arms, eqn.params["branches"], strict=True):
            self.blocks.open(label)
            self.blocks.assign(outs, self.inline(branch, args))
            self.blocks.jump(None, join)
        self.blocks.open(join)
        return outs


def _row(x: Any, at: Position, aval: Aval) -> Row:
    """The current row of a stream."""
    assert isinstance(x, Var)  # a literal has no rows
    return Row(x, at, aval, x.active)


@cached(256)
def _counting(length: int) -> core.ClosedJaxpr:
    """From a counter to the next one, and whether it is one of a loop's turns."""

    def count(i: Any) -> list[Any]:
        following = i + np.int32(1)
        return [following, jnp.less(following, np.int32(length))]

    return jax.make_jaxpr(count)(jax.ShapeDtypeStruct((), np.int32))


@cached(256)
def _blank_of(aval: Aval) -> core.ClosedJaxpr:
    return jax.make_jaxpr(lambda: [blank(aval)])()


GRAIN = 2**20
"""Scans with fewer bytes of residuals stay one operation: reversing them by storing
everything is then cheaper than any bookkeeping."""


def keep_map(eqn: Any, active: Sequence[bool], grain: int) -> Any:
    """The scan with trips that are run again; `None` if it has to be opened.

    A scan whose residuals are many is opened: each trip is a step. In the middle of
    another step, that makes registers of all that the rest of the step still needs, in
    every snapshot, and a run of many more steps. A scan that carries no derivative
    (`lax.map`, or stacked outputs beside a counter) needs none of it: its trips depend
    on one another by numbers alone, so each can be run again when it is swept back.
    Before, and after:

        zs = scan[body] ys              a step for each trip; ys, zs in every snapshot
        zs = scan[checkpoint body] ys   one operation, which tapes what it reads

    It is right whatever the scan does, and holds the residuals of one trip at a time.
    """
    if eqn.primitive.name != "scan":
        return None
    params, body = eqn.params, closed(eqn.params["jaxpr"])
    nc, nk = scan_parts(params)
    carry, _ = scan_carry(params, active)
    if any(carry) or body.consts:
        return None
    # A loop inside that has to be reversed step by step cannot be run again whole.
    if opens_inside(body, [*active[:nc], *carry, *active[nc + nk :]], grain):
        return None
    again = jax.checkpoint(core.jaxpr_as_fun(body), prevent_cse=False)
    made = jax.make_jaxpr(again)(*map(struct, body.in_avals))
    same = [(a.shape, a.dtype) for a in body.out_avals]
    if made.consts or [(a.shape, a.dtype) for a in made.out_avals] != same:
        return None
    return eqn.replace(params=params | {"jaxpr": made})

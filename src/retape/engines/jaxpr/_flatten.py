"""Pass 1: a closed jaxpr becomes blocks.

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

from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from ._activity import called, closed, must_open, outputs, scan_carry, while_carry
from ._foreign import passed_through
from ._gates import is_gated
from ._inline import through
from ._ir import (
    Atom,
    Aval,
    Block,
    Item,
    Jump,
    Label,
    Lit,
    Loop,
    Op,
    Position,
    Program,
    Read,
    Var,
    Write,
)
from ._lanes import (
    any_of,
    harmless,
    of_one_that_goes,
    parts,
    through_gate,
    where,
)
from ._maps import kept_whole
from ._types import blank, struct

# Recomputed where they are needed rather than carried from block to block, as long
# as nothing but operands, literals and one another goes into them and no derivative
# comes out: they move or make up numbers, and XLA fuses them into their consumer.
_CHEAP = frozenset("broadcast_in_dim iota reshape squeeze expand_dims full".split())


@dataclass(frozen=True, slots=True, eq=False)
class _Row:
    """The row of a stream that belongs to the current iteration: read when used."""

    stream: Var
    at: Position
    aval: Aval
    active: bool


def flatten(
    jaxpr: core.ClosedJaxpr, active: Sequence[bool], *, grain: int
) -> tuple[Program, list[Any]]:
    """The blocks of `jaxpr`, and the values of the constants among its operands.

    Args:
        jaxpr: The program. Its constants become operands behind its inputs.
        active: For each input, whether a derivative by it is wanted.
        grain: A scan whose residuals exceed so many bytes is opened.
    """
    inputs = [Var(v.aval, a) for v, a in zip(jaxpr.jaxpr.invars, active, strict=True)]
    flat = _Flattener(grain)
    consts = [
        flat.constant(c, v.aval)
        for v, c in zip(jaxpr.jaxpr.constvars, jaxpr.consts, strict=True)
    ]
    flat.operands.update(v for v in inputs)
    outs = flat.body(jaxpr.jaxpr, consts, inputs)
    outs = [flat.here(o) for o in outs]
    flat.block.next = Jump(None, ())
    operands = (*inputs, *flat.constants)
    program = Program(operands, flat.items, tuple(outs), run_length(flat.items))
    return program, list(flat.constants.values())


class _Flattener:
    def __init__(self, grain: int) -> None:
        self.grain = grain
        self.items: list[Item] = []
        self.inside = 0
        self.constants: dict[Var, Any] = {}
        self.operands: set[Var] = set()
        self.block = self.open(Label())
        self.origin: dict[Var, Block] = {}
        self.recipe: dict[Var, Op] = {}
        self.copies: dict[tuple[Block, Any], Var] = {}

    # Blocks ------------------------------------------------------------------

    def open(self, label: Label) -> Block:
        """Begin a new block."""
        self.block = Block(label)
        self.items.append(self.block)
        return self.block

    @contextmanager
    def loop(self, length: int | None):
        """Blocks opened inside stand in a loop."""
        outer, self.items = self.items, []
        self.inside += 1
        yield
        self.inside -= 1
        outer.append(Loop(self.items, length))
        self.items = outer

    # Values ------------------------------------------------------------------

    def constant(self, value: Any, aval: Aval) -> Atom:
        """A constant: in the code if it is one number, else an operand."""
        if np.ndim(value) == 0 and not _extended(aval):
            return Lit(value, aval)
        var = Var(aval)
        self.constants[var] = value
        self.operands.add(var)
        return var

    def here(self, atom: Atom | _Row) -> Atom:
        """An atom that can be used in the current block."""
        if isinstance(atom, Lit) or atom in self.operands:
            return atom
        if isinstance(atom, _Row):
            return self._once(atom, self._read)
        op = self.recipe.get(atom)
        if op is None or self.origin[atom] is self.block:
            return atom
        return self._once(atom, lambda a: self._again(op))

    def _once(self, key: Any, make: Any) -> Var:
        found = self.copies.get((self.block, key))
        if found is None:
            found = self.copies[self.block, key] = make(key)
        return found

    def _read(self, row: _Row) -> Var:
        out = Var(row.aval, row.active)
        # The stream itself is never recomputed: its cotangent is gathered row by row.
        self.block.reads.append(Read(out, row.stream, row.at))
        self.origin[out] = self.block
        return out

    def _again(self, op: Op) -> Var:
        ins = tuple(self.here(a) for a in op.ins)
        out = Var(op.outs[0].aval, op.outs[0].active)
        self.block.ops.append(Op(op.eqn, ins, (out,)))
        self.origin[out] = self.block
        return out

    # Code --------------------------------------------------------------------

    def body(self, jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
        """Emit the equations of a jaxpr; returns the atoms of its outputs."""
        return through(jaxpr, consts, args, self.equation)

    def inline(self, jaxpr: Any, args: Sequence[Any]) -> list[Any]:
        """Emit a closed jaxpr in place of a call of it."""
        pairs = zip(jaxpr.jaxpr.constvars, jaxpr.consts, strict=True)
        consts = [self.constant(c, v.aval) for v, c in pairs]
        return self.body(jaxpr.jaxpr, consts, args)

    def equation(self, eqn: Any, ins: list[Any]) -> list[Any]:
        active = [not isinstance(a, Lit) and a.active for a in ins]
        if eqn.primitive.name in ("jit", "pjit"):
            # A `jit` inside a traced program is no more than a name for its body.
            return self.inline(closed(eqn.params["jaxpr"]), ins)
        same = passed_through(eqn, active)
        if same is not None and outputs(eqn, active) == [active[same]]:
            return [ins[same]]
        if not must_open(eqn, active, self.grain):
            return self.operation(eqn, ins, active)
        whole = kept_whole(eqn, active, self.grain) if self.inside else None
        if whole is not None:
            return self.operation(whole, ins, active)
        match eqn.primitive.name:
            case "while":
                return self.while_(eqn, ins, active)
            case "scan":
                return self.scan(eqn, ins, active)
            case "cond":
                return self.cond(eqn, ins, active)
            case _:
                body = called(eqn)
                assert body is not None
                return self.inline(body, ins)

    def operation(self, eqn: Any, ins: list[Any], active: list[bool]) -> list[Var]:
        """One equation that stays whole."""
        atoms = tuple(self.here(a) for a in ins)
        outs = tuple(
            Var(v.aval, a)
            for v, a in zip(eqn.outvars, outputs(eqn, active), strict=True)
        )
        op = Op(eqn, atoms, outs)
        self.block.ops.append(op)
        for out in outs:
            self.origin[out] = self.block
        cheap = eqn.primitive.name in _CHEAP and not outs[0].active
        if cheap and all(self._free(a) for a in atoms):
            self.recipe[outs[0]] = op
        return list(outs)

    def _free(self, atom: Atom) -> bool:
        return isinstance(atom, Lit) or atom in self.operands or atom in self.recipe

    # Loops and branches -------------------------------------------------------

    def while_(self, eqn: Any, ins: list[Any], active: list[bool]) -> list[Var]:
        p = eqn.params
        cn, bn = p["cond_nconsts"], p["body_nconsts"]
        cond_consts, body_consts, init = ins[:cn], ins[cn : cn + bn], ins[cn + bn :]
        flags = while_carry(p, active)
        carry = [Var(v.aval, a) for v, a in zip(eqn.outvars, flags, strict=True)]

        def test(values: list[Any]) -> Atom:
            return self.here(self.inline(p["cond_jaxpr"], [*cond_consts, *values])[0])

        def body(values: list[Any]) -> list[Any]:
            return self.inline(p["body_jaxpr"], [*body_consts, *values])

        def step() -> tuple[list[Any], Atom]:
            outs = body(list(carry))
            return outs, test(outs)

        (lanes,) = p["cond_jaxpr"].out_avals
        if not lanes.shape:
            self.rotated(carry, init, test(init), None, step)
        elif is_gated(
            p["body_jaxpr"].jaxpr, [*active[cn : cn + bn], *flags], lanes.shape
        ):
            self.batched_while(carry, init, test, lambda values, _: body(values))
        elif any(active[cn : cn + bn]):
            self.harmless_while(carry, init, test, body)
        else:
            self.batched_while(carry, init, test, self.gated(body))
        return carry

    def gated(self, body: Any) -> Any:
        """A body from which no derivative comes back in lanes that stand."""

        def gated(values: list[Any], going: Var) -> list[Any]:
            through = [
                self.emit(through_gate, [going, v])[0] if v.active else v
                for v in values
            ]
            return body(through)

        return gated

    def batched_while(
        self, carry: list[Var], init: list[Any], test: Any, body: Any
    ) -> None:
        """A `while` under `vmap`: it runs as long as any lane does; the others stand.

        The lanes that go on are part of the carry, the program counter never is.
        """
        first = test(init)
        going = Var(first.aval)

        def step() -> tuple[list[Any], Atom]:
            outs = self.stood(going, body(list(carry), going), carry)
            again = test(outs)
            return [*outs, again], self.emit(any_of, [again])[0]

        more = self.emit(any_of, [first])[0]
        self.rotated([*carry, going], [*init, first], more, None, step)

    def harmless_while(
        self, carry: list[Var], init: list[Any], test: Any, body: Any
    ) -> None:
        """The same; lanes that stand take their last step again, for nothing."""
        first = test(init)
        going, before = Var(first.aval), [Var(v.aval) for v in carry]
        start = [
            self.emit(of_one_that_goes, [first, v])[0] for v in map(self.here, init)
        ]

        def step() -> tuple[list[Any], Atom]:
            pairs = zip(carry, before, strict=True)
            given, kept = parts([self.emit(harmless, [going, *p]) for p in pairs])
            outs = self.stood(going, body(given), carry)
            again = test(outs)
            return [*outs, again, *kept], self.emit(any_of, [again])[0]

        more = self.emit(any_of, [first])[0]
        self.rotated([*carry, going, *before], [*init, first, *start], more, None, step)

    def stood(self, going: Var, new: list[Any], old: list[Var]) -> list[Any]:
        """The new values in the lanes that go on, the old ones in the others."""
        pairs = zip(new, old, strict=True)
        return [self.emit(where, [going, *pair])[0] for pair in pairs]

    def rotated(
        self,
        carry: list[Var],
        init: list[Any],
        first: Atom | None,
        length: int | None,
        step: Any,
        extra: Any = None,
    ) -> None:
        """The shape of every loop: `first` decides on entry, `step` at the end."""
        top, after = Label(), Label()
        self.assign(carry, init)
        if first is None:
            self.block.next = Jump(None, (top,))
        else:
            self.block.next = Jump(first, (after, top))
        with self.loop(length):
            self.open(top)
            outs, again = step()
            self.assign(carry, outs)
            self.block.next = Jump(again, (after, top))
        self.open(after)

    def assign(self, dst: list[Var], src: list[Any]) -> None:
        """Parallel moves at the end of the current block."""
        for d, s in zip(dst, src, strict=True):
            atom = self.here(s)
            if atom is not d:
                self.block.moves[d] = atom

    def scan(self, eqn: Any, ins: list[Any], active: list[bool]) -> list[Any]:
        p = eqn.params
        nc, nk, length = p["num_consts"], p["num_carry"], p["length"]
        consts, init = ins[:nc], ins[nc : nc + nk]
        # A row that this scan goes through in turn is read whole, before the loop.
        xs = [self.here(x) if isinstance(x, _Row) else x for x in ins[nc + nk :]]
        carry_on, ys_on = scan_carry(p, active)
        ys = [Var(v.aval, a) for v, a in zip(eqn.outvars[nk:], ys_on, strict=True)]
        if length == 0:
            return [*init, *map(self.blank, ys)]
        carry = [
            Var(v.aval, a) for v, a in zip(eqn.outvars[:nk], carry_on, strict=True)
        ]
        count = Var(_scalar(np.int32))
        body = closed(p["jaxpr"])
        slots = body.jaxpr.invars[nc + nk :]

        at = Position(count, length, p["reverse"])

        def step() -> tuple[list[Any], Atom]:
            rows = [self.row(x, at, v.aval) for x, v in zip(xs, slots, strict=True)]
            outs = self.inline(body, [*consts, *carry, *rows])
            for stream, y in zip(ys, outs[nk:], strict=True):
                self.block.writes.append(Write(stream, at, self.here(y)))
            following, again = self.emit(_count_of(length), [count])
            self.block.moves[count] = following
            return outs[:nk], again

        self.assign([*ys, count], [*map(self.blank, ys), Lit(np.int32(0), count.aval)])
        self.rotated(carry, init, None, length, step)
        return [*carry, *ys]

    def row(self, x: Atom, at: Position, aval: Aval) -> _Row:
        """The current row of a stream."""
        assert isinstance(x, Var)  # a literal has no rows
        return _Row(x, at, aval, x.active)

    def blank(self, var: Var) -> Atom:
        """An array of zeros of a variable's type."""
        return self.emit(lambda: [blank(var.aval)], [])[0]

    def emit(self, fun: Any, ins: list[Any]) -> list[Any]:
        """Code of our own, beside the user's."""
        made = jax.make_jaxpr(fun)(*(struct(a.aval) for a in ins))
        return self.inline(made, ins)

    def cond(self, eqn: Any, ins: list[Any], active: list[bool]) -> list[Var]:
        index, *args = ins
        flags = outputs(eqn, active)
        outs = [Var(v.aval, a) for v, a in zip(eqn.outvars, flags, strict=True)]
        arms = [Label() for _ in eqn.params["branches"]]
        join = Label()
        chosen = self.here(index)
        self.block.next = Jump(chosen, tuple(arms))
        for label, branch in zip(arms, eqn.params["branches"], strict=True):
            self.open(label)
            self.assign(outs, self.inline(branch, args))
            self.block.next = Jump(None, (join,))
        self.open(join)
        return outs


def _extended(aval: Aval) -> bool:
    return jax.dtypes.issubdtype(aval.dtype, jax.dtypes.extended)


def _scalar(dtype: Any) -> Aval:
    return Aval((), np.dtype(dtype))


def _count_of(length: int) -> Any:
    def count(i: Any) -> list[Any]:
        following = i + np.int32(1)
        return [following, jnp.less(following, np.int32(length))]

    return count


def run_length(items: list[Item]) -> int | None:
    """Number of steps of one run, if no choice depends on a value."""
    total = 0
    for item in items:
        if isinstance(item, Loop):
            inner = run_length(item.items)
            if inner is None or item.length is None:
                return None
            total += item.length * inner
        elif item.next.index is not None and len(item.next.targets) > 1:
            if not _ends_counted_loop(item, items):
                return None
            total += 1
        else:
            total += 1
    return total


def _ends_counted_loop(block: Block, items: list[Item]) -> bool:
    """Whether the choice at a block's end is the test of the counted loop around it.

    `_length` reaches a loop's last block only through that loop, whose own length it
    checks; every other two-way choice is a `cond` or the entry of a `while`.
    """
    first = items[0]
    assert isinstance(first, Block)
    return block is items[-1] and block.next.targets[1:] == (first.label,)

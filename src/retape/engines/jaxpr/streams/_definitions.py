"""What the operations of one block say of its small values.

i' = select(i < 0, i + 9, i)    one expression, however often it is written
p' = broadcast p                 the truth p
0' = select(0 < 0, 9, 0)         the number 0
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from retape.engines.jaxpr.ir._flow_graph import Flow
from retape.engines.jaxpr.ir._ir import Atom, Aval, Block, Label, Lit, Op, Var
from retape.engines.jaxpr.jaxprs._evaluate import bind
from retape.engines.jaxpr.jaxprs._primitive_table import Also, is_a
from retape.engines.jaxpr.jaxprs._rewrite import programs_of

_STRIDE = 2**16
"""The furthest that a counter may go at once: 32 bits last for 2**14 rows at least."""


class Definitions:
    """The operations of a block, by what they make."""

    def __init__(self, ops: Sequence[Op]) -> None:
        self.ops = tuple(ops)
        self.makers = {o: op for op in ops for o in op.outs}
        self._numbers: dict[Var, Any] = {}
        self._alike: dict[tuple[Atom, Atom], bool] = {}
        self._origins: dict[Atom, frozenset[Var] | None] = {}
        self.counters: frozenset[Var] = frozenset()
        """Variables that count up from a number >= 0, in every block."""

    def maker(self, atom: Atom) -> Op | None:
        """The operation of this block that makes an atom."""
        return self.makers.get(atom) if isinstance(atom, Var) else None

    def root(self, atom: Atom) -> Atom:
        """The first atom with the same value, but for its shape and width."""
        op = self.maker(atom)
        while op is not None and is_a(op.eqn, Also.SAME_NUMBER):
            before = op.ins[0]
            if not _keeps(before.aval.dtype, atom.aval.dtype):
                return atom
            atom = before
            op = self.maker(atom)
        return atom

    def number(self, atom: Atom) -> Any:
        """A number that follows from what stands in the program, else `None`."""
        if jax.dtypes.issubdtype(atom.aval.dtype, jax.dtypes.extended):
            return None
        if isinstance(atom, Lit):
            traced = isinstance(atom.value, Tracer)
            return None if traced else np.asarray(atom.value, atom.aval.dtype)
        if atom not in self._numbers:
            self._numbers[atom] = self._worked_out(atom)
        return self._numbers[atom]

    def _worked_out(self, atom: Var) -> Any:
        op = self.maker(atom)
        if op is None or atom.aval.size != 1 or op.eqn.effects:
            return None
        if programs_of(op.eqn):
            return None  # a loop may run for long
        ins = [self.number(a) for a in op.ins]
        if op.eqn.primitive.name == "pvary":
            return ins[0]  # the same number on every device, told to each
        if not ins or any(v is None for v in ins):
            return None
        with jax.ensure_compile_time_eval():
            outs = bind(op.eqn, ins)
        return np.asarray(outs[op.outs.index(atom)])

    def same(self, a: Atom, b: Atom) -> bool:
        """Tell whether two atoms are one expression, whatever their shapes."""
        a, b = self.root(a), self.root(b)
        if a is b:
            return True
        if (a, b) not in self._alike:
            self._alike[a, b] = self._one_expression(a, b)
        return self._alike[a, b]

    def _one_expression(self, a: Atom, b: Atom) -> bool:
        one, other = self.number(a), self.number(b)
        if one is not None and other is not None:
            return bool(one.reshape(()) == other.reshape(()))
        x, y = self.maker(a), self.maker(b)
        return (
            x is not None
            and y is not None
            and x.eqn.primitive is y.eqn.primitive
            and not x.eqn.effects
            and len(x.outs) == len(y.outs) == 1
            and x.eqn.params == y.eqn.params
            and all(map(self.same, x.ins, y.ins))
        )

    def same_row(self, a: Atom, b: Atom) -> bool:
        """The same of two indices, where JAX may have wrapped each in its own width."""
        one, other = self.counted(a), self.counted(b)
        counts = one is not None and one == other and one[0] in self.counters
        return counts or self.same(a, b)

    def counted(self, index: Atom) -> tuple[Atom, int] | None:
        """An integer as another one and a constant, as far as that can be told.

        JAX's own wrapping of a negative index is passed over: whoever asks has to know
        that it is not negative.
        """
        shift = 0
        while is_integer(index.aval):
            op = self.maker(index)
            name = "" if op is None else op.eqn.primitive.name
            if op is not None and name == "add":
                step = self.number(op.ins[1])
                if step is None or not 0 <= step <= _STRIDE:
                    return None
                index, shift = op.ins[0], shift + int(step)
            elif op is not None and name == "select_n" and self._wraps(*op.ins[:2]):
                index = op.ins[1]
            elif op is not None and is_a(op.eqn, Also.SAME_NUMBER):
                index = op.ins[0]
            else:
                return index, shift
        return None

    def origins(self, atom: Atom) -> frozenset[Var] | None:
        """Variables that make an integer >= 0 if they are; `None` if none are known to.

        Where it grows it does so by constants, so that it is not wrapped round.
        """
        if atom not in self._origins:
            self._origins[atom] = self._found_origins(atom)
        return self._origins[atom]

    def _found_origins(self, atom: Atom) -> frozenset[Var] | None:
        whole = jax.dtypes.issubdtype(atom.aval.dtype, np.integer)
        known = self.number(atom) if whole else None
        if known is not None:
            small = known.size == 1 and 0 <= known.item() <= _STRIDE
            return frozenset() if small else None
        op = self.maker(atom)
        if op is None:
            if isinstance(atom, Var) and is_integer(atom.aval):
                return frozenset({atom})
            return None
        if is_a(op.eqn, Also.SAME_NUMBER):
            truth = op.ins[0].aval.dtype == np.bool_
            return frozenset() if truth else self.origins(op.ins[0])
        name = op.eqn.primitive.name
        if name == "select_n" and self._wraps(*op.ins[:2]):
            return self.origins(op.ins[1])
        parts = op.ins[1:] if name == "select_n" else op.ins if name == "add" else ()
        found = [self.origins(a) for a in parts]
        if not found or None in found or (name == "add" and all(found)):
            return None
        return frozenset[Var]().union(*(f for f in found if f is not None))

    def _wraps(self, which: Atom, value: Atom) -> bool:
        """Tell whether it asks if a value is negative."""
        op = self.maker(self.root(which))
        if op is None or op.eqn.primitive.name != "lt":
            return False
        zero = self.number(op.ins[1])
        return zero is not None and not zero and self.same(op.ins[0], value)


def is_integer(aval: Aval) -> bool:
    """A signed integer so wide that counting does not wrap it round."""
    if jax.dtypes.issubdtype(aval.dtype, jax.dtypes.extended):
        return False
    dtype = np.dtype(aval.dtype)
    return dtype.kind == "i" and dtype.itemsize >= 4 and aval.size == 1


def define(
    flow: Flow, ops: Callable[[Block], Sequence[Op]]
) -> dict[Label, Definitions]:
    """The definitions of all blocks."""
    made = {b.label: Definitions(ops(b)) for b in flow.blocks}
    counters = _counters(flow, made)
    for each in made.values():
        each.counters = counters
    return made


def rises(made: Definitions, block: Block, index: Atom) -> bool:
    """Tell whether an integer is another one each time that a block runs in its loop.

    It is a counter, and a constant perhaps, that grows with each run of the block.
    """
    found = made.counted(index)
    if found is None or found[0] not in made.counters:
        return False
    counter = found[0]
    assert isinstance(counter, Var)
    after = made.counted(block.moves.get(counter, counter))
    return after is not None and after[0] is counter and after[1] > 0


def _counters(flow: Flow, made: dict[Label, Definitions]) -> frozenset[Var]:
    """Variables of which all that they are assigned is a count from a number >= 0."""
    sources: dict[Var, frozenset[Var]] = {}
    integers = ((v, them) for v, them in flow.defined.items() if is_integer(v.aval))
    for var, blocks in integers:
        found = [made[b.label].origins(b.moves.get(var, var)) for b in blocks]
        if None not in found:
            sources[var] = frozenset().union(*(f for f in found if f is not None))
    while True:
        lost = {v for v, them in sources.items() if not them <= sources.keys()}
        if not lost:
            return frozenset(sources)
        sources = {v: them for v, them in sources.items() if v not in lost}


def _keeps(old: Any, new: Any) -> bool:
    """Tell whether a value of one type stays what it is in another."""
    return old == new or (old.kind == new.kind and np.can_cast(old, new, "safe"))

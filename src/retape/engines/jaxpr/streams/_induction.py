"""Integers of a block, as a variable on entry plus a constant, in cases.

    j = i + 1                   i + 1
    k = select(p, i, j)         i        where p is false;   i + 1   where it is true
    w = select(j < 0, j, j+9)   i + 1    provided that this is not negative

The last is JAX's own wrapping of an index. Whoever uses a case has to prove that what
must not be negative is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from jax.core import Tracer

from retape.engines.jaxpr.ir._ir import Atom, Aval, Lit, Op, Var
from retape.engines.jaxpr.jaxprs._primitive_table import Also, is_a

Facts = frozenset[tuple[Atom, bool]]
"""Truth values, and whether each of them holds."""

_MOST_CASES = 16
"""Cases beyond which nothing is known."""


@dataclass(frozen=True, slots=True)
class Case:
    """`base + shift`, where `facts` hold; without a base a constant."""

    facts: Facts
    base: Var | None
    shift: int
    least: int | None = None
    """If `base + least` is not negative."""


class Growth:
    """The integers and truth values of one block's operations."""

    def __init__(self, ops: Sequence[Op]) -> None:
        self.ops = tuple(ops)
        self.makers = {o: op for op in ops for o in op.outs}
        self._found: dict[Var, list[Case]] = {}
        self._first: dict[Any, Atom] = {}

    def cases(self, atom: Atom) -> list[Case]:
        """All that an integer can be; nothing if that is not known."""
        if isinstance(atom, Lit):
            return [Case(frozenset(), None, int(atom.value))] if _known(atom) else []
        if atom not in self._found:
            found = list(dict.fromkeys(self._cases(atom)))
            self._found[atom] = found if len(found) <= _MOST_CASES else []
        return self._found[atom]

    def _cases(self, atom: Var) -> list[Case]:
        op = self.makers.get(atom)
        if not is_index(atom.aval):
            return []
        if op is None:
            return [Case(frozenset(), atom, 0)]
        match op.eqn.primitive.name:
            case "convert_element_type" if op.ins[0].aval.dtype == np.bool_:
                facts = [self.fact(op.ins[0], value) for value in (False, True)]
                return [Case(f, None, i) for i, f in enumerate(facts)]
            case _ if is_a(op.eqn, Also.SAME_NUMBER):
                found = self.cases(op.ins[0])
                return found if all(_fits(c, atom.aval) for c in found) else []
            case "add":
                return self._sum(*op.ins, sign=1)
            case "sub":
                return self._sum(*op.ins, sign=-1)
            case "select_n" if op.ins[0].aval.dtype == np.bool_:
                return self._chosen(*op.ins)
            case _:
                return []

    def _sum(self, a: Atom, b: Atom, *, sign: int) -> list[Case]:
        found: list[Case] = []
        for x, y in product(self.cases(a), self.cases(b)):
            if y.base is not None and (x.base is not None or sign < 0):
                return []
            facts = x.facts | y.facts
            if self.possible(facts):
                most = x if y.base is None else y
                shift = x.shift + sign * y.shift
                found.append(Case(facts, most.base, shift, most.least))
        return found

    def _chosen(self, which: Atom, no: Atom, yes: Atom) -> list[Case]:
        if self._wraps(which, no):
            return self._not_negative(self.cases(no))
        found: list[Case] = []
        for value, atom in ((False, no), (True, yes)):
            cases = self.cases(atom)
            if not cases:
                return []
            more = [c.facts | self.fact(which, value) for c in cases]
            pairs = zip(cases, more, strict=True)
            found += [replace(c, facts=f) for c, f in pairs if self.possible(f)]
        return found

    def _not_negative(self, cases: Sequence[Case]) -> list[Case]:
        if any(c.base is None and c.shift < 0 for c in cases):
            return []
        least = [c.shift if c.least is None else min(c.least, c.shift) for c in cases]
        pairs = zip(cases, least, strict=True)
        return [c if c.base is None else replace(c, least=n) for c, n in pairs]

    def _wraps(self, which: Atom, value: Atom) -> bool:
        """Tell whether it asks if a value is negative."""
        op = self.maker(self.root(which))
        if op is None or op.eqn.primitive.name != "lt":
            return False
        low = op.ins[1]
        zero = isinstance(low, Lit) and low.value == 0
        return zero and self.root(op.ins[0]) is self.root(value)

    def maker(self, atom: Atom) -> Op | None:
        """The operation of this block that makes an atom."""
        return self.makers.get(atom) if isinstance(atom, Var) else None

    # Truth values ------------------------------------------------------------------

    def root(self, atom: Atom) -> Atom:
        """The first atom with the same value, but for its shape and width."""
        op = self.maker(atom)
        while op is not None and is_a(op.eqn, Also.SAME_NUMBER):
            before = op.ins[0]
            if not _keeps(before.aval.dtype, atom.aval.dtype):
                return atom
            atom = before
            op = self.maker(atom)
        if op is None or not is_a(op.eqn, Also.TRUTH):
            return atom
        # What is asked twice has one answer.
        key = op.eqn.primitive.name, *map(_itself, map(self.root, op.ins))
        return self._first.setdefault(key, atom)

    def fact(self, truth: Atom, value: bool) -> Facts:
        """That a truth value is this."""
        return frozenset({(self.root(truth), value)})

    def possible(self, facts: Facts) -> bool:
        """True if these facts do not contradict one another, as far as is known."""
        known: dict[Atom, bool] = {}
        todo = list(facts)
        while todo:
            atom, value = todo.pop()
            fixed = self._fixed(atom)
            if fixed is not None:
                if fixed != value:
                    return False
            elif known.setdefault(atom, value) != value:
                return False
            else:
                todo += self._implied(atom, value)
        return True

    def _fixed(self, truth: Atom) -> bool | None:
        """A truth value that stands in the program."""
        if isinstance(truth, Lit):
            return None if isinstance(truth.value, Tracer) else bool(truth.value)
        op = self.makers.get(truth)
        if op is None or op.eqn.primitive.name != "lt":
            return None
        a, b = (x.value if isinstance(x, Lit) else None for x in op.ins)
        return None if a is None or b is None else bool(a < b)

    def _implied(self, atom: Atom, value: bool) -> list[tuple[Atom, bool]]:
        op = self.maker(atom)
        name = "" if op is None else op.eqn.primitive.name
        if op is not None and (name, value) in {("and", True), ("or", False)}:
            return [(self.root(a), value) for a in op.ins]
        if op is not None and name == "not":
            return [(self.root(op.ins[0]), not value)]
        return []


def is_index(aval: Aval) -> bool:
    """A signed integer so wide that counting does not wrap it round."""
    dtype = np.dtype(aval.dtype)
    return dtype.kind == "i" and dtype.itemsize >= 4 and aval.size == 1


def _fits(case: Case, aval: Aval) -> bool:
    """Tell whether a constant stays what it is in an integer's type."""
    most = np.iinfo(np.dtype(aval.dtype))
    return case.base is not None or most.min <= case.shift <= most.max


def _keeps(old: Any, new: Any) -> bool:
    """Tell whether a value of one type stays what it is in another."""
    return old == new or (old.kind == new.kind and np.can_cast(old, new, "safe"))


def _itself(atom: Atom) -> Any:
    """Key of an atom: literals by their value, where it is known."""
    if isinstance(atom, Var) or isinstance(atom.value, Tracer):
        return atom
    return str(atom.aval.dtype), np.asarray(atom.value).item()


def _known(atom: Lit) -> bool:
    """Tell whether it is an integer that stands in the program."""
    return np.dtype(atom.aval.dtype).kind in "iu" and not isinstance(atom.value, Tracer)

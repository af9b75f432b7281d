"""Analysis: of what size of the values on its tape a reverse has finite partials.

An adjoint of zero is not propagated: zero times an infinite partial would be no number,
of a part that does not matter. The reverse of typed code multiplies all the same, and
where a cotangent is no number leaves the stage to the general way, which looks. Where
every partial is finite there is nothing to look at: the same no number would come of
that, as of infinite adjoints it does.

A partial of a sum, a product or a sine is finite if what it takes is. What is taken is
on the tape, or in a list, or computed again of that, as a polynomial: that says how
large it may be.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from retape.engines.vlad.compiler.typed._derivatives import partials_of
from retape.engines.vlad.compiler.typed._form import (
    Do,
    Nil,
    Register,
    TypedAtom,
)
from retape.engines.vlad.compiler.typed._recorded import Recorded
from retape.engines.vlad.compiler.typed._row_operations import PRODUCTS, is_each
from retape.engines.vlad.compiler.typed._ways import Way
from retape.engines.vlad.operators._row import Trait
from retape.engines.vlad.operators._table import DIVIDE, MULTIPLY, names_with

_FINITE = names_with(Trait.FINITE)
_EXPONENT = 1_000
"""Powers of two that are doubles, and some to spare."""


@dataclass(frozen=True, slots=True)
class _Size:
    """A bound: two to the power of `doublings`, times the largest value to a power."""

    degree: int = 1
    doublings: int = 0


def largest_tame(ways: Iterable[tuple[Way, Recorded]]) -> float:
    """The largest value on the tape with which all partials are finite; 0 for none."""
    largest = float(_EXPONENT)
    for way, tape in ways:
        for step in way.steps:
            if isinstance(step, Do) and not _is_tame(step):
                return 0.0
        for size in _sizes_again(tape):
            largest = min(largest, (_EXPONENT - size.doublings) / size.degree)
    return math.ldexp(1.0, int(largest)) if largest >= 1.0 else 0.0


def _is_tame(step: Do) -> bool:
    if step.op in PRODUCTS or is_each(step.op):
        return False
    if step.op == DIVIDE:
        divisor = step.args[1]
        return isinstance(divisor, float) and abs(divisor) > 1e-300
    if any(isinstance(arg, float) and not math.isfinite(arg) for arg in step.args):
        return False
    return step.op in _FINITE or not partials_of(step.op)


def _sizes_again(tape: Recorded) -> Iterable[_Size]:
    """How large what is computed again may get."""
    known: dict[TypedAtom, _Size] = {}
    for step in tape.again:
        sizes = [_size(tape.same.get(arg, arg), known) for arg in step.args]
        known[step.var] = _of_operator(step.op, sizes)
    return known.values()


def _size(atom: TypedAtom, known: dict[TypedAtom, _Size]) -> _Size:
    if isinstance(atom, Register):
        return known.get(atom, _Size())
    if isinstance(atom, Nil):
        return _Size()
    value = abs(float(atom))
    if not math.isfinite(value):
        return _Size(0, 10 * _EXPONENT)
    return _Size(0, max(0, math.frexp(value)[1]))


def _of_operator(op: str, sizes: list[_Size]) -> _Size:
    if op == MULTIPLY:
        degree = sum(size.degree for size in sizes)
        return _Size(max(1, degree), sum(size.doublings for size in sizes))
    degree = max(size.degree for size in sizes)
    return _Size(max(1, degree), max(size.doublings for size in sizes) + 1)

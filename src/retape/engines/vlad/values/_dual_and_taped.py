"""Dual numbers, tapes, and how an operator acts on any real, by its rule.

Every number that carries a derivative has the *level* of the operator that made it: 1
for the outermost derivative, 2 for one inside it. An operation happens at the highest
level among its operands, and everything lower is a constant to it; that is what keeps
the perturbations of nested derivatives apart (Siskind and Pearlmutter 2005).

The rules are made of the table of operators, as those of the compiled runtime are,
operation for operation, so that results agree in every bit.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from retape.engines.vlad.operators._float_functions import rint
from retape.engines.vlad.operators._partials import expression
from retape.engines.vlad.operators._row import Operator
from retape.engines.vlad.operators._table import OPERATORS
from retape.engines.vlad.values._values import Mismatch, show_atom

Real: TypeAlias = Any
"""A float, a `Dual` or a `Taped`."""


class Dual:
    """A number of forward mode: its primal, and its tangent at one level."""

    __slots__ = ("level", "primal", "tangent")

    def __init__(self, level: int, primal: Real, tangent: Real) -> None:
        self.level = level
        self.primal = primal
        self.tangent = tangent


class Tape:
    """The tape of one level of reverse mode: its numbers, in order of birth.

    Attributes:
        level: The level.
        nodes: The numbers.
        calls: Operations on many numbers: what propagates the adjoints of the results,
            and the number of the first of them.
    """

    __slots__ = ("calls", "level", "nodes")

    def __init__(self, level: int) -> None:
        self.level = level
        self.nodes: list[Taped] = []
        self.calls: list[tuple[int, Callable[[], None]]] = []

    def input(self, primal: Real) -> "Taped":
        """A number that the derivative is taken by."""
        return Taped(self, primal, None, 0.0, None, 0.0)

    def sweep(self) -> None:
        """Propagate adjoints from the last number to the first.

        An adjoint that is exactly zero is not propagated: zero times an infinite
        partial derivative would be no number, of a part that does not matter.
        """
        end = len(self.nodes)
        for first, propagate in reversed(self.calls):
            self._sweep(first, end)
            propagate()
            end = first
        self._sweep(0, end)

    def _sweep(self, first: int, end: int) -> None:
        for index in range(end - 1, first - 1, -1):
            node = self.nodes[index]
            adjoint = node.adjoint
            if adjoint == 0.0 if type(adjoint) is float else False:
                continue
            if node.left is not None:
                node.left.adjoint = add(node.left.adjoint, mul(node.dl, adjoint))
            if node.right is not None:
                node.right.adjoint = add(node.right.adjoint, mul(node.dr, adjoint))


class Taped:
    """A number of reverse mode: its operands at its level, and the partials by them."""

    __slots__ = ("level", "primal", "tape", "left", "dl", "right", "dr", "adjoint")

    def __init__(
        self,
        tape: Tape,
        primal: Real,
        left: "Taped | None",
        dl: Real,
        right: "Taped | None",
        dr: Real,
    ) -> None:
        self.level = tape.level
        self.primal = primal
        self.tape = tape
        self.left = left
        self.dl = dl
        self.right = right
        self.dr = dr
        self.adjoint: Real = 0.0
        tape.nodes.append(self)


def is_real(value: Any) -> bool:
    """Tell whether a value is a real, with or without a derivative."""
    kind = type(value)
    return kind is float or kind is Taped or kind is Dual


def strip(name: str, value: Any) -> float:
    """The primal of a real, below all derivatives."""
    while type(value) is not float:
        if type(value) is not Taped and type(value) is not Dual:
            raise Mismatch(f"`{name}` takes reals, not `{show_atom(value)}`")
        value = value.primal
    return value


def is_zero(value: Real) -> bool:
    """Tell whether a (co)tangent is exactly zero, and no number that may vary."""
    return type(value) is float and value == 0.0


def of_highest_level(numbers: Iterable[Real]) -> Any:
    """A number of the highest level; `None` if there are floats only."""
    carrying = [x for x in numbers if type(x) is not float]
    return max(carrying, key=lambda x: x.level, default=None)


def _level(name: str, value: Any) -> int:
    kind = type(value)
    if kind is float:
        return 0
    if kind is Taped or kind is Dual:
        return value.level
    raise Mismatch(f"`{name}` takes reals, not `{show_atom(value)}`")


@dataclass(frozen=True, slots=True)
class Rule:
    """An operator of two reals: its value, and the partials by each operand."""

    name: str
    value: Callable[[float, float], float]
    by_left: Callable[[Real, Real, Real], Real]
    by_right: Callable[[Real, Real, Real], Real]


@dataclass(frozen=True, slots=True)
class UnaryRule:
    """An operator of one real: its value, and its derivative from operand and value."""

    name: str
    value: Callable[[float], float]
    by: Callable[[Real, Real], Real]


def binary(rule: Rule) -> Callable[[Real, Real], Real]:
    """The operator of a rule on any reals."""
    value = rule.value

    def operator(a: Real, b: Real) -> Real:
        if type(a) is float and type(b) is float:
            return value(a, b)
        return _lifted(rule, operator, a, b)

    return operator


def _lifted(
    rule: Rule, operator: Callable[[Real, Real], Real], a: Real, b: Real
) -> Real:
    """An operation at the highest level among its operands."""
    left, right = _level(rule.name, a), _level(rule.name, b)
    level = max(left, right)
    p = a.primal if left == level else a
    q = b.primal if right == level else b
    y = operator(p, q)
    dl = rule.by_left(p, q, y) if left == level else 0.0
    dr = rule.by_right(p, q, y) if right == level else 0.0
    top = a if left == level else b
    if type(top) is Taped:
        on_left = a if left == level else None
        on_right = b if right == level else None
        return Taped(top.tape, y, on_left, dl, on_right, dr)
    if left != level:
        return Dual(level, y, mul(dr, b.tangent))
    tangent = mul(dl, a.tangent)
    if right == level:
        tangent = add(tangent, mul(dr, b.tangent))
    return Dual(level, y, tangent)


def unary(rule: UnaryRule) -> Callable[[Real], Real]:
    """The operator of a rule on any real."""
    value, name = rule.value, rule.name

    def operator(a: Real) -> Real:
        if type(a) is float:
            return value(a)
        level = _level(name, a)
        y = operator(a.primal)
        d = rule.by(a.primal, y)
        if type(a) is Taped:
            return Taped(a.tape, y, a, d, None, 0.0)
        return Dual(level, y, mul(d, a.tangent))

    return operator


class RealStyle:
    """An expression of Python on any reals: each operation is a call."""

    def number(self, text: str) -> str:
        return text

    def of(self, row: Operator, args: Sequence[str]) -> str:
        return f"{row.called}({', '.join(args)})"

    def rounded(self, arg: str) -> str:
        return f"rint(strip('', {arg}))"

    def choice(self, test: str, then: str, other: str) -> str:
        return f"({then} if {test} else {other})"

    def primal(self, name: str) -> str:
        return f"strip('', {name})"


def _lifted_operators() -> dict[str, Callable[..., Real]]:
    """Every operator that has a rule, on any reals, by its name.

    All partials are compiled at once: one by one took three times as long.
    """
    rows = [row for row in OPERATORS.values() if row.is_lifted]
    called: dict[str, Any] = {"rint": rint, "strip": strip}
    texts: list[str] = []
    for row in rows:
        letters = "a, y" if row.arity == 1 else "a, b, y"
        bodies = (expression(by, RealStyle()) for by in row.by)
        texts.append(f"({', '.join(f'lambda {letters}: {b}' for b in bodies)},)")
    partials = eval(f"[{', '.join(texts)}]", called)
    for row, by in zip(rows, partials, strict=True):
        assert row.python is not None, "a rule has a value"
        called[row.called] = (
            unary(UnaryRule(row.shown, row.python, *by))
            if row.arity == 1
            else binary(Rule(row.shown, row.python, *by))
        )
    return {row.name: called[row.called] for row in rows}


LIFTED = _lifted_operators()
"""Every operator that has a rule, on any reals, by its name."""

CALLED = {OPERATORS[name].called: operator for name, operator in LIFTED.items()}
"""The same, by the names that expressions call them."""

add, sub, mul, div = (LIFTED[name] for name in "+-*/")

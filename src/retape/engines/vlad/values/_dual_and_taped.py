"""Dual numbers, tapes, and arithmetic on any real: one rule for each operator.

Every number that carries a derivative has the *level* of the operator that made it: 1
for the outermost derivative, 2 for one inside it. An operation happens at the highest
level among its operands, and everything lower is a constant to it; that is what keeps
the perturbations of nested derivatives apart (Siskind and Pearlmutter 2005).

The rules are written with the same arithmetic as those of the compiled runtime,
`runtime/numbers.h`, operation for operation, so that results agree in every bit.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

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
    """What reverse mode of one level records: its numbers, in order of birth."""

    __slots__ = ("level", "nodes")

    def __init__(self, level: int) -> None:
        self.level = level
        self.nodes: list[Taped] = []

    def input(self, primal: Real) -> "Taped":
        """A number that the derivative is taken by."""
        return Taped(self, primal, None, 0.0, None, 0.0)

    def sweep(self) -> None:
        """Propagate adjoints from the last number to the first.

        An adjoint that is exactly zero is not propagated: zero times an infinite
        partial derivative would be no number, of a part that does not matter.
        """
        for node in reversed(self.nodes):
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
    """Whether a value is a real, with or without a derivative."""
    kind = type(value)
    return kind is float or kind is Taped or kind is Dual


def strip(name: str, value: Any) -> float:
    """The primal of a real, below all derivatives."""
    while type(value) is not float:
        if type(value) is not Taped and type(value) is not Dual:
            raise Mismatch(f"`{name}` takes reals, not `{show_atom(value)}`")
        value = value.primal
    return value


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


def _divide(a: float, b: float) -> float:
    """IEEE division, where Python raises."""
    if b != 0.0:
        return a / b
    if a == 0.0 or a != a:
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def _total(function: Callable[[float], float], overflow: float) -> Callable[..., float]:
    """A function of `math` that returns what C does where Python raises."""

    def total(a: float) -> float:
        try:
            return function(a)
        except OverflowError:
            return overflow
        except ValueError:
            return math.nan

    return total


def _logarithm(
    function: Callable[[float], float], pole: float = 0.0
) -> Callable[[float], float]:
    """A logarithm of `math` that is -inf at its pole, where Python raises."""

    def total(a: float) -> float:
        if a > pole:
            return function(a)
        return -math.inf if a == pole else math.nan

    return total


def _sinh(a: float) -> float:
    try:
        return math.sinh(a)
    except OverflowError:
        return math.copysign(math.inf, a)


def power(a: float, b: float) -> float:
    """The value of `expt`, as C's `pow`."""
    try:
        return math.pow(a, b)
    except OverflowError:
        odd = b == math.floor(b) and math.fmod(b, 2.0) != 0.0
        return -math.inf if a < 0.0 and odd else math.inf
    except ValueError:
        if a != 0.0:
            return math.nan
        odd = math.fmod(b, 2.0) != 0.0
        return math.copysign(math.inf, a) if odd else math.inf


def modulo(a: float, b: float) -> float:
    """The remainder with the sign of `b`, no number for `b` zero."""
    if b == 0.0 or a in (math.inf, -math.inf):
        return math.nan
    r = math.fmod(a, b)
    return r + b if r != 0.0 and (r < 0.0) != (b < 0.0) else r


def floor(a: float) -> float:
    """The largest integer not above, also of infinities."""
    return float(math.floor(a)) if math.isfinite(a) else a


def _one(*_: Real) -> Real:
    return 1.0


add = binary(Rule("+", lambda a, b: a + b, _one, _one))
sub = binary(Rule("-", lambda a, b: a - b, _one, lambda *_: -1.0))
mul = binary(Rule("*", lambda a, b: a * b, lambda a, b, y: b, lambda a, b, y: a))
div = binary(
    Rule(
        "/",
        _divide,
        lambda a, b, y: div(1.0, b),
        lambda a, b, y: div(sub(0.0, y), b),
    )
)


def _norm(a: Real, b: Real) -> Real:
    return add(mul(a, a), mul(b, b))


atan = binary(
    Rule(
        "atan",
        math.atan2,
        lambda a, b, y: div(b, _norm(a, b)),
        lambda a, b, y: div(sub(0.0, a), _norm(a, b)),
    )
)
_exp = _total(math.exp, math.inf)
sqrt = unary(UnaryRule("sqrt", _total(math.sqrt, math.inf), lambda a, y: div(0.5, y)))
exp = unary(UnaryRule("exp", _exp, lambda a, y: y))
log = unary(UnaryRule("log", _logarithm(math.log), lambda a, y: div(1.0, a)))
sin = unary(UnaryRule("sin", _total(math.sin, math.nan), lambda a, y: cos(a)))
cos = unary(UnaryRule("cos", _total(math.cos, math.nan), lambda a, y: sub(0.0, sin(a))))
tan = unary(
    UnaryRule("tan", _total(math.tan, math.nan), lambda a, y: add(1.0, mul(y, y)))
)
asin = unary(
    UnaryRule("asin", _total(math.asin, math.nan), lambda a, y: div(1.0, _cosine(a)))
)
acos = unary(
    UnaryRule("acos", _total(math.acos, math.nan), lambda a, y: div(-1.0, _cosine(a)))
)
sinh = unary(UnaryRule("sinh", _sinh, lambda a, y: cosh(a)))
cosh = unary(UnaryRule("cosh", _total(math.cosh, math.inf), lambda a, y: sinh(a)))
tanh = unary(UnaryRule("tanh", math.tanh, lambda a, y: sub(1.0, mul(y, y))))
expm1 = unary(
    UnaryRule("expm1", _total(math.expm1, math.inf), lambda a, y: add(y, 1.0))
)
log1p = unary(
    UnaryRule("log1p", _logarithm(math.log1p, -1.0), lambda a, y: div(1.0, add(1.0, a)))
)
log2 = unary(UnaryRule("log2", _logarithm(math.log2), lambda a, y: div(_LOG2_E, a)))
log10 = unary(UnaryRule("log10", _logarithm(math.log10), lambda a, y: div(_LOG10_E, a)))
erf = unary(
    UnaryRule("erf", math.erf, lambda a, y: mul(_ERF_SLOPE, exp(sub(0.0, mul(a, a)))))
)
absolute = unary(UnaryRule("abs", abs, lambda a, y: _slope_of_abs("abs", a)))
negative = unary(UnaryRule("-", lambda a: -a, lambda a, y: -1.0))

_LOG2_E = 1.4426950408889634
_LOG10_E = 0.4342944819032518
_ERF_SLOPE = 1.1283791670955126
"""The derivative of `erf` at zero, 2 / sqrt(pi)."""


def _cosine(sine: Real) -> Real:
    return sqrt(sub(1.0, mul(sine, sine)))


def _slope_of_abs(name: str, a: Real) -> float:
    """The slope of `abs`; at zero, where there is none, the middle one."""
    primal = strip(name, a)
    return 1.0 if primal > 0.0 else -1.0 if primal < 0.0 else 0.0


def _power_by_base(a: Real, b: Real, y: Real) -> Real:
    """b a^(b-1); zero for the constant a^0, also where a is zero."""
    return 0.0 if strip("expt", b) == 0.0 else mul(b, expt(a, sub(b, 1.0)))


def _power_by_exponent(a: Real, b: Real, y: Real) -> Real:
    """a^b log a; zero where a is, as the limit from above is for b > 0."""
    return 0.0 if strip("expt", a) == 0.0 else mul(y, log(a))


expt = binary(Rule("expt", power, _power_by_base, _power_by_exponent))


def negate(value: Any) -> Real:
    """`(- e)`: the negative of a real, or the difference of the parts of a pair."""
    return sub(*value) if type(value) is tuple and value else negative(value)


def least(a: Real, b: Real) -> Real:
    """`min`: one of its operands, with its derivatives; the first if they are equal."""
    return b if strip("min", b) < strip("min", a) else a


def greatest(a: Real, b: Real) -> Real:
    """`max`: one of its operands, with its derivatives; the first if they are equal."""
    return b if strip("max", b) > strip("max", a) else a


LARGEST_INTEGER = 2.0**53


def too_large(value: float) -> str:
    """The message for an int that a double may not hold."""
    return (
        f"the int {value:.17g} is above 2**53 and would be rounded; compute with floats"
    )


def check_integer(value: Any) -> Real:
    """An int of Python, which a double holds exactly up to 2**53."""
    primal = strip("int", value)
    if not abs(primal) <= LARGEST_INTEGER:
        raise Mismatch(too_large(primal))
    return value


def _python_remainder(a: float, b: float) -> float:
    return a % b if b != 0.0 and math.isfinite(a) else math.nan


def _quotient(a: Real, b: Real, y: Real) -> float:
    """The whole number of times that b goes into a, with a minus."""
    primal = strip("%", b)
    return -round((strip("%", a) - strip("%", y)) / primal) + 0.0


def floor_divide(a: Any, b: Any) -> float:
    """`a // b` of floats, which is a constant to derivatives."""
    x, y = strip("//", a), strip("//", b)
    return x // y if y != 0.0 else math.nan


remainder = binary(Rule("%", _python_remainder, _one, _quotient))

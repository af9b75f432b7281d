"""The operators on reals that the language has, each with its derivative."""

import math
from typing import Any

from retape.engines.vlad.values._dual_and_taped import (
    Real,
    Rule,
    UnaryRule,
    add,
    binary,
    mul,
    strip,
    sub,
    unary,
)
from retape.engines.vlad.values._float_functions import (
    divide,
    hyperbolic_sine,
    logarithm,
    power,
    total,
)

div = binary(
    Rule(
        "/",
        divide,
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
_exp = total(math.exp, math.inf)
sqrt = unary(UnaryRule("sqrt", total(math.sqrt, math.inf), lambda a, y: div(0.5, y)))
exp = unary(UnaryRule("exp", _exp, lambda a, y: y))
log = unary(UnaryRule("log", logarithm(math.log), lambda a, y: div(1.0, a)))
sin = unary(UnaryRule("sin", total(math.sin, math.nan), lambda a, y: cos(a)))
cos = unary(UnaryRule("cos", total(math.cos, math.nan), lambda a, y: sub(0.0, sin(a))))
tan = unary(
    UnaryRule("tan", total(math.tan, math.nan), lambda a, y: add(1.0, mul(y, y)))
)
asin = unary(
    UnaryRule("asin", total(math.asin, math.nan), lambda a, y: div(1.0, _cosine(a)))
)
acos = unary(
    UnaryRule("acos", total(math.acos, math.nan), lambda a, y: div(-1.0, _cosine(a)))
)
sinh = unary(UnaryRule("sinh", hyperbolic_sine, lambda a, y: cosh(a)))
cosh = unary(UnaryRule("cosh", total(math.cosh, math.inf), lambda a, y: sinh(a)))
tanh = unary(UnaryRule("tanh", math.tanh, lambda a, y: sub(1.0, mul(y, y))))
expm1 = unary(UnaryRule("expm1", total(math.expm1, math.inf), lambda a, y: add(y, 1.0)))
log1p = unary(
    UnaryRule("log1p", logarithm(math.log1p, -1.0), lambda a, y: div(1.0, add(1.0, a)))
)
log2 = unary(UnaryRule("log2", logarithm(math.log2), lambda a, y: div(_LOG2_E, a)))
log10 = unary(UnaryRule("log10", logarithm(math.log10), lambda a, y: div(_LOG10_E, a)))
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

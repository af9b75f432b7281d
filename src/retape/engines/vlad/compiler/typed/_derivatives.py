"""The derivatives of typed code's operators: the table of `runtime/numbers.h`, as C.

`g` is the adjoint of the result `y` of operands `a` and `b`. Each product is the one
that the general way computes, in its order, so that both agree in every bit.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rule:
    """What an operand's adjoint gets, and which values that takes (`a`, `b`, `y`)."""

    text: str
    takes: str = ""


SUM = "a * a + b * b"

LEFT: dict[str, Rule] = {
    "+": Rule("g"),
    "-": Rule("g"),
    "*": Rule("b * g", "b"),
    "/": Rule("(1.0 / b) * g", "b"),
    "atan": Rule(f"(b / ({SUM})) * g", "ab"),
    "expt": Rule("(b == 0.0 ? 0.0 : b * pow(a, b - 1.0)) * g", "ab"),
    "remainder": Rule("g"),
    "min": Rule("(b < a ? 0.0 : g)", "ab"),
    "max": Rule("(b > a ? 0.0 : g)", "ab"),
    "(-)": Rule("-g"),
    "check-integer": Rule("g"),
    "real": Rule("g"),
    "sqrt": Rule("(0.5 / y) * g", "y"),
    "exp": Rule("y * g", "y"),
    "log": Rule("(1.0 / a) * g", "a"),
    "sin": Rule("cos(a) * g", "a"),
    "cos": Rule("(0.0 - sin(a)) * g", "a"),
    "tan": Rule("(1.0 + y * y) * g", "y"),
    "asin": Rule("(1.0 / sqrt(1.0 - a * a)) * g", "a"),
    "acos": Rule("(-1.0 / sqrt(1.0 - a * a)) * g", "a"),
    "sinh": Rule("cosh(a) * g", "a"),
    "cosh": Rule("sinh(a) * g", "a"),
    "tanh": Rule("(1.0 - y * y) * g", "y"),
    "expm1": Rule("(y + 1.0) * g", "y"),
    "log1p": Rule("(1.0 / (1.0 + a)) * g", "a"),
    "log2": Rule("(1.4426950408889634 / a) * g", "a"),
    "log10": Rule("(0.4342944819032518 / a) * g", "a"),
    "erf": Rule("(1.1283791670955126 * exp(0.0 - a * a)) * g", "a"),
    "abs": Rule("(a > 0.0 ? 1.0 : a < 0.0 ? -1.0 : 0.0) * g", "a"),
}
"""By the first operand. Operators that are not here have no derivative."""

RIGHT: dict[str, Rule] = {
    "+": Rule("g"),
    "-": Rule("-g"),
    "*": Rule("a * g", "a"),
    "/": Rule("((0.0 - y) / b) * g", "by"),
    "atan": Rule(f"((0.0 - a) / ({SUM})) * g", "ab"),
    "expt": Rule("(a == 0.0 ? 0.0 : y * log(a)) * g", "ay"),
    "remainder": Rule("(-rint((a - y) / b) + 0.0) * g", "aby"),
    "min": Rule("(b < a ? g : 0.0)", "ab"),
    "max": Rule("(b > a ? g : 0.0)", "ab"),
}
"""By the second operand."""

CHEAP = {
    "+": "a + b",
    "-": "a - b",
    "*": "a * b",
    "(-)": "-a",
    "check-integer": "a",
    "real": "a",
}
"""Operators that the reverse runs again instead of keeping their values."""

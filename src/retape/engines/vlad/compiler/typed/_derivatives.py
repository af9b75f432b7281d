"""The derivatives of typed code's operators: the table of `runtime/numbers.h`, as C.

`g` is the adjoint of the result `y` of operands `a` and `b`. Each product is the one
that the general way computes, in its order, so that both agree in every bit.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Partial:
    """What an operand's adjoint gets, and which values that takes (`a`, `b`, `y`)."""

    text: str
    takes: str = ""


SUM = "a * a + b * b"

LEFT: dict[str, Partial] = {
    "+": Partial("g"),
    "-": Partial("g"),
    "*": Partial("b * g", "b"),
    "/": Partial("(1.0 / b) * g", "b"),
    "atan": Partial(f"(b / ({SUM})) * g", "ab"),
    "expt": Partial("(b == 0.0 ? 0.0 : b * pow(a, b - 1.0)) * g", "ab"),
    "remainder": Partial("g"),
    "min": Partial("(b < a ? 0.0 : g)", "ab"),
    "max": Partial("(b > a ? 0.0 : g)", "ab"),
    "(-)": Partial("-g"),
    "check-integer": Partial("g"),
    "real": Partial("g"),
    "square": Partial("a * g + a * g", "a"),
    "sqrt": Partial("(0.5 / y) * g", "y"),
    "exp": Partial("y * g", "y"),
    "log": Partial("(1.0 / a) * g", "a"),
    "sin": Partial("cos(a) * g", "a"),
    "cos": Partial("(0.0 - sin(a)) * g", "a"),
    "tan": Partial("(1.0 + y * y) * g", "y"),
    "asin": Partial("(1.0 / sqrt(1.0 - a * a)) * g", "a"),
    "acos": Partial("(-1.0 / sqrt(1.0 - a * a)) * g", "a"),
    "sinh": Partial("cosh(a) * g", "a"),
    "cosh": Partial("sinh(a) * g", "a"),
    "tanh": Partial("(1.0 - y * y) * g", "y"),
    "expm1": Partial("(y + 1.0) * g", "y"),
    "log1p": Partial("(1.0 / (1.0 + a)) * g", "a"),
    "log2": Partial("(1.4426950408889634 / a) * g", "a"),
    "log10": Partial("(0.4342944819032518 / a) * g", "a"),
    "erf": Partial("(1.1283791670955126 * exp(0.0 - a * a)) * g", "a"),
    "abs": Partial("(a > 0.0 ? 1.0 : a < 0.0 ? -1.0 : 0.0) * g", "a"),
}
"""By the first operand. Operators that are not here have no derivative."""

RIGHT: dict[str, Partial] = {
    "+": Partial("g"),
    "-": Partial("-g"),
    "*": Partial("a * g", "a"),
    "/": Partial("((0.0 - y) / b) * g", "by"),
    "atan": Partial(f"((0.0 - a) / ({SUM})) * g", "ab"),
    "expt": Partial("(a == 0.0 ? 0.0 : y * log(a)) * g", "ay"),
    "remainder": Partial("(-rint((a - y) / b) + 0.0) * g", "aby"),
    "min": Partial("(b < a ? g : 0.0)", "ab"),
    "max": Partial("(b > a ? g : 0.0)", "ab"),
}
"""By the second operand."""

BESIDE: dict[str, tuple[str, Partial]] = {
    "sin": ("cos", Partial("p * g", "p")),
    "cos": ("sin", Partial("(0.0 - p) * g", "p")),
    "sinh": ("cosh", Partial("p * g", "p")),
    "cosh": ("sinh", Partial("p * g", "p")),
}
"""Operators whose derivative is another one's value, `p`, if that was applied, too."""

CHEAP = {
    "+": "a + b",
    "-": "a - b",
    "*": "a * b",
    "(-)": "-a",
    "check-integer": "a",
    "real": "a",
    "car": "(a) ->value",
    "cdr": "(a) ->next",
}
"""Operators that the reverse runs again instead of keeping their values."""


def filled(text: str, values: dict[str, str]) -> str:
    """A rule's text, with the variables for its letters."""
    words = text.replace("(", " ( ").replace(")", " ) ").replace(",", " ,").split(" ")
    words = [
        "-" + values[w[1:]] if w[:1] == "-" and w[1:] in values else values.get(w, w)
        for w in words
    ]
    return " ".join(word for word in words if word)

"""Ints of Python as doubles: exact, or refused; and division as Python has it."""

import math
from typing import Any

from retape.engines.vlad.values._dual_and_taped import Real, Rule, binary, one, strip
from retape.engines.vlad.values._float_functions import divide
from retape.engines.vlad.values._values import Mismatch

LARGEST_INTEGER = 2.0**53


def too_large(value: float) -> str:
    """The message for an int that a double may not hold."""
    return (
        f"the int {value:.17g} is not below 2**53 and may be rounded; compute with "
        "floats"
    )


def check_integer(value: Any) -> Real:
    """An int of Python, which a double holds exactly below 2**53.

    What was 2**53 + 1 before it was rounded is 2**53.
    """
    primal = strip("int", value)
    if not abs(primal) < LARGEST_INTEGER:
        raise Mismatch(too_large(primal))
    return value


def _python_remainder(a: float, b: float) -> float:
    return a % b if b != 0.0 and math.isfinite(a) else math.nan


def _quotient(a: Real, b: Real, y: Real) -> float:
    """The whole number of times that b goes into a, with a minus."""
    times = divide(strip("%", a) - strip("%", y), strip("%", b))
    return -(round(times) if math.isfinite(times) else times) + 0.0


def floor_divide(a: Any, b: Any) -> float:
    """`a // b` of floats, which is a constant to derivatives."""
    x, y = strip("//", a), strip("//", b)
    return x // y if y != 0.0 else math.nan


remainder = binary(Rule("%", _python_remainder, one, _quotient))

"""Functions of floats with the values of C, where Python raises."""

import math
from collections.abc import Callable


def divide(a: float, b: float) -> float:
    """IEEE division, where Python raises."""
    if b != 0.0:
        return a / b
    if a == 0.0 or a != a:
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def total(function: Callable[[float], float], overflow: float) -> Callable[..., float]:
    """A function of `math` that returns what C does where Python raises."""

    def total(a: float) -> float:
        try:
            return function(a)
        except OverflowError:
            return overflow
        except ValueError:
            return math.nan

    return total


def logarithm(
    function: Callable[[float], float], pole: float = 0.0
) -> Callable[[float], float]:
    """A logarithm of `math` that is -inf at its pole, where Python raises."""

    def total(a: float) -> float:
        if a > pole:
            return function(a)
        return -math.inf if a == pole else math.nan

    return total


def hyperbolic_sine(a: float) -> float:
    """`sinh`, infinite where Python raises."""
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
        odd = b == math.floor(b) and math.fmod(b, 2.0) != 0.0
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


def remainder(a: float, b: float) -> float:
    """`%` of Python's floats, and no number where it raises."""
    return a % b if b != 0.0 and math.isfinite(a) else math.nan


def floor_divide(a: float, b: float) -> float:
    """`//` of Python's floats, and no number where it raises."""
    return a // b if b != 0.0 else math.nan


def rint(a: float) -> float:
    """The nearest integer, the even one of two, also of infinities."""
    return float(round(a)) if math.isfinite(a) else a

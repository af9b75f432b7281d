"""Functions of numbers, written in the language that is compiled."""

import math
from typing import Any

import numpy as np


def itself(x: Any) -> Any:
    return x


def is_true(x: Any) -> Any:
    return x != 0


def is_no_number(x: Any) -> Any:
    return x != x


def truncated(x: Any) -> Any:
    """Towards zero."""
    return -math.floor(-x) if x < 0.0 else math.floor(x)


def ceiling(x: Any) -> Any:
    return -math.floor(-x)


def degrees(x: Any) -> Any:
    return x * 57.29577951308232


def radians(x: Any) -> Any:
    return x * 0.017453292519943295


def angle(x: Any) -> Any:
    return math.atan2(x, 1.0)


def angle_of(y: Any, x: Any) -> Any:
    return math.atan2(y, x)


def to_the_power(x: Any, y: Any) -> Any:
    return float(x) ** float(y)


def larger(x: Any, y: Any) -> Any:
    """No number if one of them is none."""
    return max(x, y) if y == y else y


def smaller(x: Any, y: Any) -> Any:
    """No number if one of them is none."""
    return min(x, y) if y == y else y


def hypotenuse(x: Any, y: Any) -> Any:
    """The root of the sum of squares, where none could overflow or vanish."""
    squares = float(x) * x + float(y) * y
    if 1e-290 < squares < 1e300:
        return np.sqrt(squares)
    return scaled_hypotenuse(abs(float(x)), abs(float(y)))


def scaled_hypotenuse(x: Any, y: Any) -> Any:
    """A power of two brings both to where no square overflows, and not all vanish.

    Dividing by the larger one would give that a slope, which engines round differently.
    """
    # No number is not larger than zero; so an infinity is found beside one.
    most = max(max(0.0, x), y)
    if not math.isfinite(most):
        return most
    if most == 0.0:
        return x + y
    scale = 4.149515568880993e180 if most < 1.0 else 2.409919865102884e-181
    p, q = x * scale, y * scale
    return np.sqrt(p * p + q * q) / scale


def clipped(x: Any, low: Any, high: Any) -> Any:
    return smaller(larger(x, low), high)


def chosen(is_first: Any, x: Any, y: Any) -> Any:
    return x if is_first else y


# masks: an array of bools has ones and zeros


def less(x: Any, y: Any) -> Any:
    return 1.0 if x < y else 0.0


def less_or_equal(x: Any, y: Any) -> Any:
    return 1.0 if x <= y else 0.0


def equal(x: Any, y: Any) -> Any:
    return 1.0 if x == y else 0.0


def different(x: Any, y: Any) -> Any:
    return 1.0 if x != y else 0.0


def both(x: Any, y: Any) -> Any:
    return 1.0 if x and y else 0.0


def either(x: Any, y: Any) -> Any:
    return 1.0 if x or y else 0.0


def opposite(x: Any) -> Any:
    return 0.0 if x else 1.0

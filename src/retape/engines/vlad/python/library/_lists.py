"""Lists: so many numbers for each item, in a row that has room for more of them."""

from typing import Any

import numpy as np


def with_room(a: Any, used: Any, more: Any) -> Any:
    """A row with room behind what is used: twice as long as what was too short."""
    if used + more <= len(a):
        return a
    longer = np.zeros(2 * (used + more))
    for i in range(used):
        longer[i] = a[i]
    return longer


def width_with(count: Any, width: Any, values: Any) -> Any:
    """How many numbers an item has, if these are one."""
    if count > 0:
        assert len(values) == width, "the arrays of a list differ in length"
    return len(values)


def total_of(xs: Any) -> Any:
    result = 0
    for x in xs:
        result = result + x
    return result


def largest_of(xs: Any) -> Any:
    assert len(xs) > 0, "an array without items has no mean, no largest item"
    result = xs[0]
    for x in xs:
        result = max(result, x)
    return result


def smallest_of(xs: Any) -> Any:
    assert len(xs) > 0, "an array without items has no mean, no largest item"
    result = xs[0]
    for x in xs:
        result = min(result, x)
    return result

"""Parts of arrays, and lists, read and written in place.

The bounds of a part are Python's, of either sign.

A part begins at a place among an array's items; each axis of it has a step, by which
one goes on to the next item, and how many there are. Of those with more axes than one
the last is a row, and all but the first and the last are counted together.
"""

from typing import Any

import numpy as np


def _bound(at: Any, length: Any) -> Any:
    if at < 0:
        at += length
    return min(max(at, 0), length)


def _bound_down(at: Any, length: Any) -> Any:
    if at < 0:
        at += length
    return min(max(at, -1), length - 1)


def span(bounds: Any, length: Any) -> Any:
    """The first place, the step, and how many."""
    start, stop, step = bounds
    if step > 0:
        first = _bound(start, length)
        count = max(0, (_bound(stop, length) - first + step - 1) // step)
        return first, step, count
    first = _bound_down(start, length)
    count = max(0, (first - _bound_down(stop, length) - step - 1) // -step)
    return first, step, count


def checked_place(at: Any, length: Any) -> Any:
    if at < 0:
        at += length
    assert 0 <= at < length, "index out of range"
    return at


def length_left(length: Any, product: Any, size: Any) -> Any:
    """A length of a new shape; if it is -1, what the others leave of the size."""
    if length >= 0:
        return length
    assert length == -1, "the shapes of two arrays differ"
    assert product < 0, "the shapes of two arrays differ"
    return size // -product


def part_of_one(a: Any, base: Any, axis: Any) -> Any:
    step, count = axis
    result = np.zeros(count)
    for i in range(count):
        result[i] = a[base + i * step]
    return result


def set_part_of_one(a: Any, base: Any, axis: Any, values: Any) -> Any:
    step, count = axis
    for i in range(count):
        a[base + i * step] = values[i]
    return a


def fill_part_of_one(a: Any, base: Any, axis: Any, value: Any) -> Any:
    step, count = axis
    for i in range(count):
        a[base + i * step] = value
    return a


def _begin_of_row(base: Any, axes: Any, i: Any, rest: Any) -> Any:
    """Where a row begins."""
    (di, _), (dj, _), (dk, nk), _ = axes
    j = rest // nk
    return base + i * di + j * dj + (rest - j * nk) * dk


def part(a: Any, base: Any, axes: Any) -> Any:
    (_, ni), (_, nj), (_, nk), (step, count) = axes
    result = np.zeros(ni * nj * nk * count)
    for i in range(ni):
        for rest in range(nj * nk):
            start = _begin_of_row(base, axes, i, rest)
            to = (i * nj * nk + rest) * count
            for m in range(count):
                result[to + m] = a[start + m * step]
    return result


def set_part(a: Any, base: Any, axes: Any, values: Any) -> Any:
    (_, ni), (_, nj), (_, nk), (step, count) = axes
    for i in range(ni):
        for rest in range(nj * nk):
            start = _begin_of_row(base, axes, i, rest)
            of = (i * nj * nk + rest) * count
            for m in range(count):
                a[start + m * step] = values[of + m]
    return a


def fill_part(a: Any, base: Any, axes: Any, value: Any) -> Any:
    (_, ni), (_, nj), (_, nk), (step, count) = axes
    for i in range(ni):
        for rest in range(nj * nk):
            start = _begin_of_row(base, axes, i, rest)
            for m in range(count):
                a[start + m * step] = value
    return a


# lists: so many numbers for each item, in a row that has room for more of them


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

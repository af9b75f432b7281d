"""Parts of arrays: read, and written in place. Bounds are Python's, of either sign."""

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


def _span(start: Any, stop: Any, step: Any, length: Any) -> Any:
    """The first place, and how many."""
    if step > 0:
        first = _bound(start, length)
        return first, max(0, (_bound(stop, length) - first + step - 1) // step)
    first = _bound_down(start, length)
    return first, max(0, (first - _bound_down(stop, length) - step - 1) // -step)


def _checked_place(at: Any, length: Any) -> Any:
    if at < 0:
        at += length
    assert 0 <= at < length, "index out of range"
    return at


def part(a: Any, start: Any, stop: Any, step: Any) -> Any:
    first, count = _span(start, stop, step, len(a))
    result = np.zeros(count)
    for i in range(count):
        result[i] = a[first + i * step]
    return result


def set_part(a: Any, start: Any, stop: Any, step: Any, values: Any) -> Any:
    first, count = _span(start, stop, step, len(a))
    assert len(values) == count, "the lengths of two arrays differ"
    for i in range(count):
        a[first + i * step] = values[i]
    return a


def fill_part(a: Any, start: Any, stop: Any, step: Any, value: Any) -> Any:
    first, count = _span(start, stop, step, len(a))
    for i in range(count):
        a[first + i * step] = value
    return a


def row(a: Any, i: Any, start: Any, stop: Any, step: Any) -> Any:
    at = _checked_place(i, a.shape[0])
    first, count = _span(start, stop, step, a.shape[1])
    result = np.zeros(count)
    for j in range(count):
        result[j] = a[at, first + j * step]
    return result


def set_row(a: Any, i: Any, start: Any, stop: Any, step: Any, values: Any) -> Any:
    at = _checked_place(i, a.shape[0])
    first, count = _span(start, stop, step, a.shape[1])
    assert len(values) == count, "the lengths of two arrays differ"
    for j in range(count):
        a[at, first + j * step] = values[j]
    return a


def fill_row(a: Any, i: Any, start: Any, stop: Any, step: Any, value: Any) -> Any:
    at = _checked_place(i, a.shape[0])
    first, count = _span(start, stop, step, a.shape[1])
    for j in range(count):
        a[at, first + j * step] = value
    return a


def column(a: Any, start: Any, stop: Any, step: Any, j: Any) -> Any:
    at = _checked_place(j, a.shape[1])
    first, count = _span(start, stop, step, a.shape[0])
    result = np.zeros(count)
    for i in range(count):
        result[i] = a[first + i * step, at]
    return result


def set_column(a: Any, start: Any, stop: Any, step: Any, j: Any, values: Any) -> Any:
    at = _checked_place(j, a.shape[1])
    first, count = _span(start, stop, step, a.shape[0])
    assert len(values) == count, "the lengths of two arrays differ"
    for i in range(count):
        a[first + i * step, at] = values[i]
    return a


def fill_column(a: Any, start: Any, stop: Any, step: Any, j: Any, value: Any) -> Any:
    at = _checked_place(j, a.shape[1])
    first, count = _span(start, stop, step, a.shape[0])
    for i in range(count):
        a[first + i * step, at] = value
    return a


def block(a: Any, r: Any, rs: Any, rt: Any, c: Any, cs: Any, ct: Any) -> Any:
    top, height = _span(r, rs, rt, a.shape[0])
    left, width = _span(c, cs, ct, a.shape[1])
    result = np.zeros((height, width))
    for i in range(height):
        for j in range(width):
            result[i, j] = a[top + i * rt, left + j * ct]
    return result


def set_block(
    a: Any, r: Any, rs: Any, rt: Any, c: Any, cs: Any, ct: Any, values: Any
) -> Any:
    top, height = _span(r, rs, rt, a.shape[0])
    left, width = _span(c, cs, ct, a.shape[1])
    assert values.shape[0] == height, "the shapes of two arrays differ"
    assert values.shape[1] == width, "the shapes of two arrays differ"
    for i in range(height):
        for j in range(width):
            a[top + i * rt, left + j * ct] = values[i, j]
    return a


def fill_block(
    a: Any, r: Any, rs: Any, rt: Any, c: Any, cs: Any, ct: Any, value: Any
) -> Any:
    top, height = _span(r, rs, rt, a.shape[0])
    left, width = _span(c, cs, ct, a.shape[1])
    for i in range(height):
        for j in range(width):
            a[top + i * rt, left + j * ct] = value
    return a

"""Parts of arrays: read, and written in place. Bounds are Python's, of either sign.

Of each axis a start, a stop and a step are given; an index at_i a part of one item.
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


def _span(bounds: Any, length: Any) -> Any:
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
    """A length of a new shape; if it at_i -1, what the others leave of the size."""
    if length >= 0:
        return length
    assert length == -1, "the shapes of two arrays differ"
    assert product < 0, "the shapes of two arrays differ"
    return size // -product


def part_1(a: Any, at_i: Any) -> Any:
    i0, di, ni = _span(at_i, len(a))
    result = np.zeros(ni)
    for i in range(ni):
        result[i] = a[i0 + i * di]
    return result


def set_part_1(a: Any, at_i: Any, values: Any) -> Any:
    i0, di, ni = _span(at_i, len(a))
    assert len(values) == ni, "the lengths of two arrays differ"
    for i in range(ni):
        a[i0 + i * di] = values[i]
    return a


def fill_part_1(a: Any, at_i: Any, value: Any) -> Any:
    i0, di, ni = _span(at_i, len(a))
    for i in range(ni):
        a[i0 + i * di] = value
    return a


def part_2(a: Any, at_i: Any, at_j: Any) -> Any:
    i0, di, ni = _span(at_i, a.shape[0])
    j0, dj, nj = _span(at_j, a.shape[1])
    result = np.zeros((ni, nj))
    for i in range(ni):
        for j in range(nj):
            result[i, j] = a[i0 + i * di, j0 + j * dj]
    return result


def set_part_2(a: Any, at_i: Any, at_j: Any, values: Any) -> Any:
    i0, di, ni = _span(at_i, a.shape[0])
    j0, dj, nj = _span(at_j, a.shape[1])
    assert values.shape[0] == ni, "the shapes of two arrays differ"
    assert values.shape[1] == nj, "the shapes of two arrays differ"
    for i in range(ni):
        for j in range(nj):
            a[i0 + i * di, j0 + j * dj] = values[i, j]
    return a


def fill_part_2(a: Any, at_i: Any, at_j: Any, value: Any) -> Any:
    i0, di, ni = _span(at_i, a.shape[0])
    j0, dj, nj = _span(at_j, a.shape[1])
    for i in range(ni):
        for j in range(nj):
            a[i0 + i * di, j0 + j * dj] = value
    return a


def part_3(a: Any, at_i: Any, at_j: Any, at_k: Any) -> Any:
    i0, di, ni = _span(at_i, a.shape[0])
    j0, dj, nj = _span(at_j, a.shape[1])
    k0, dk, nk = _span(at_k, a.shape[2])
    result = np.zeros((ni, nj, nk))
    for i in range(ni):
        for j in range(nj):
            for k in range(nk):
                result[i, j, k] = a[i0 + i * di, j0 + j * dj, k0 + k * dk]
    return result


def set_part_3(a: Any, at_i: Any, at_j: Any, at_k: Any, values: Any) -> Any:
    i0, di, ni = _span(at_i, a.shape[0])
    j0, dj, nj = _span(at_j, a.shape[1])
    k0, dk, nk = _span(at_k, a.shape[2])
    assert values.shape[0] == ni, "the shapes of two arrays differ"
    assert values.shape[1] == nj, "the shapes of two arrays differ"
    assert values.shape[2] == nk, "the shapes of two arrays differ"
    for i in range(ni):
        for j in range(nj):
            for k in range(nk):
                a[i0 + i * di, j0 + j * dj, k0 + k * dk] = values[i, j, k]
    return a


def fill_part_3(a: Any, at_i: Any, at_j: Any, at_k: Any, value: Any) -> Any:
    i0, di, ni = _span(at_i, a.shape[0])
    j0, dj, nj = _span(at_j, a.shape[1])
    k0, dk, nk = _span(at_k, a.shape[2])
    for i in range(ni):
        for j in range(nj):
            for k in range(nk):
                a[i0 + i * di, j0 + j * dj, k0 + k * dk] = value
    return a


def part_4(a: Any, at_i: Any, at_j: Any, at_k: Any, at_m: Any) -> Any:
    i0, di, ni = _span(at_i, a.shape[0])
    j0, dj, nj = _span(at_j, a.shape[1])
    k0, dk, nk = _span(at_k, a.shape[2])
    m0, dm, nm = _span(at_m, a.shape[3])
    result = np.zeros((ni, nj, nk, nm))
    for i in range(ni):
        for j in range(nj):
            for k in range(nk):
                for m in range(nm):
                    result[i, j, k, m] = a[
                        i0 + i * di, j0 + j * dj, k0 + k * dk, m0 + m * dm
                    ]
    return result


def set_part_4(a: Any, at_i: Any, at_j: Any, at_k: Any, at_m: Any, values: Any) -> Any:
    i0, di, ni = _span(at_i, a.shape[0])
    j0, dj, nj = _span(at_j, a.shape[1])
    k0, dk, nk = _span(at_k, a.shape[2])
    m0, dm, nm = _span(at_m, a.shape[3])
    assert values.shape[0] == ni, "the shapes of two arrays differ"
    assert values.shape[1] == nj, "the shapes of two arrays differ"
    assert values.shape[2] == nk, "the shapes of two arrays differ"
    assert values.shape[3] == nm, "the shapes of two arrays differ"
    for i in range(ni):
        for j in range(nj):
            for k in range(nk):
                for m in range(nm):
                    a[i0 + i * di, j0 + j * dj, k0 + k * dk, m0 + m * dm] = values[
                        i, j, k, m
                    ]
    return a


def fill_part_4(a: Any, at_i: Any, at_j: Any, at_k: Any, at_m: Any, value: Any) -> Any:
    i0, di, ni = _span(at_i, a.shape[0])
    j0, dj, nj = _span(at_j, a.shape[1])
    k0, dk, nk = _span(at_k, a.shape[2])
    m0, dm, nm = _span(at_m, a.shape[3])
    for i in range(ni):
        for j in range(nj):
            for k in range(nk):
                for m in range(nm):
                    a[i0 + i * di, j0 + j * dj, k0 + k * dk, m0 + m * dm] = value
    return a

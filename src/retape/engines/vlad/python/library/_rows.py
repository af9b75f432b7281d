"""NumPy's functions of arrays of one dimension, and of two.

Each is compiled with the function that calls it, and differentiated with it.
"""

import math
from typing import Any

import numpy as np


def mean(a: Any) -> Any:
    assert len(a) > 0, "an array without items has no mean, no largest item"
    return a.sum() / len(a)


def product(a: Any) -> Any:
    result = 1.0
    for i in range(len(a)):
        result *= a[i]
    return result


def largest(a: Any) -> Any:
    assert len(a) > 0, "an array without items has no mean, no largest item"
    result = a[0]
    for i in range(1, len(a)):
        result = np.maximum(result, a[i])
    return result


def smallest(a: Any) -> Any:
    assert len(a) > 0, "an array without items has no mean, no largest item"
    result = a[0]
    for i in range(1, len(a)):
        result = np.minimum(result, a[i])
    return result


def place_of_largest(a: Any) -> Any:
    assert len(a) > 0, "an array without items has no mean, no largest item"
    found = 0
    for i in range(1, len(a)):
        if a[found] == a[found] and not a[i] <= a[found]:
            found = i
    return found


def place_of_smallest(a: Any) -> Any:
    assert len(a) > 0, "an array without items has no mean, no largest item"
    found = 0
    for i in range(1, len(a)):
        if a[found] == a[found] and not a[i] >= a[found]:
            found = i
    return found


def sums(a: Any) -> Any:
    result = np.zeros(len(a))
    total = 0.0
    for i in range(len(a)):
        total += a[i]
        result[i] = total
    return result


def products(a: Any) -> Any:
    result = np.zeros(len(a))
    total = 1.0
    for i in range(len(a)):
        total *= a[i]
        result[i] = total
    return result


def variance(a: Any) -> Any:
    middle = mean(a)
    total = 0.0
    for i in range(len(a)):
        total += (a[i] - middle) * (a[i] - middle)
    return total / len(a)


def deviation(a: Any) -> Any:
    return np.sqrt(variance(a))


def norm(a: Any) -> Any:
    return np.sqrt((a * a).sum())


def differences(a: Any) -> Any:
    result = np.zeros(max(len(a) - 1, 0))
    for i in range(len(a) - 1):
        result[i] = a[i + 1] - a[i]
    return result


def outer(a: Any, b: Any) -> Any:
    result = np.zeros((len(a), len(b)))
    for i in range(len(a)):
        for j in range(len(b)):
            result[i, j] = a[i] * b[j]
    return result


def outer_of_numbers(a: Any, b: Any) -> Any:
    return np.full((1, 1), 1.0 * a * b)


def joined(a: Any, b: Any) -> Any:
    n = len(a)
    result = np.zeros(n + len(b))
    for i in range(n):
        result[i] = a[i]
    for i in range(len(b)):
        result[n + i] = b[i]
    return result


def spaced(start: Any, stop: Any, count: Any) -> Any:
    result = np.zeros(count)
    step = (stop - start) / max(count - 1, 1)
    for i in range(count):
        result[i] = start + i * step
    if count > 1:
        result[count - 1] = stop
    return result


def counted(stop: Any) -> Any:
    return counted_by(0.0, stop, 1.0)


def counted_from(start: Any, stop: Any) -> Any:
    return counted_by(start, stop, 1.0)


def counted_by(start: Any, stop: Any, step: Any) -> Any:
    result = np.zeros(max(math.ceil((stop - start) / step), 0))
    for i in range(len(result)):
        result[i] = start + i * step
    return result


# along one axis of an array of (outer, n, inner) items


def sum_of_row(a: Any) -> Any:
    return a.sum()


def over_axis(a: Any, outer: Any, n: Any, inner: Any, function: Any) -> Any:
    """A number for each row."""
    result = np.zeros(outer * inner)
    for i in range(outer):
        for j in range(inner):
            each = np.zeros(n)
            for k in range(n):
                each[k] = a[(i * n + k) * inner + j]
            result[i * inner + j] = function(each)
    return result


def along_axis(a: Any, outer: Any, n: Any, inner: Any, function: Any) -> Any:
    """As many numbers for each row."""
    result = np.zeros(len(a))
    for i in range(outer):
        for j in range(inner):
            each = np.zeros(n)
            for k in range(n):
                each[k] = a[(i * n + k) * inner + j]
            found = function(each)
            for k in range(n):
                result[(i * n + k) * inner + j] = found[k]
    return result


# item by item


def of_items(a: Any, function: Any) -> Any:
    result = np.zeros(len(a))
    for i in range(len(a)):
        result[i] = function(a[i])
    return result


def of_two_items(a: Any, b: Any, function: Any) -> Any:
    result = np.zeros(len(a))
    for i in range(len(a)):
        result[i] = function(a[i], b[i])
    return result


def of_three_items(a: Any, b: Any, c: Any, function: Any) -> Any:
    result = np.zeros(len(a))
    for i in range(len(a)):
        result[i] = function(a[i], b[i], c[i])
    return result


def transposed(a: Any) -> Any:
    result = np.zeros((a.shape[1], a.shape[0]))
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            result[j, i] = a[i, j]
    return result


def trace(a: Any) -> Any:
    result = 0.0
    for i in range(min(a.shape[0], a.shape[1])):
        result += a[i, i]
    return result


def diagonal(a: Any) -> Any:
    count = min(a.shape[0], a.shape[1])
    result = np.zeros(count)
    for i in range(count):
        result[i] = a[i, i]
    return result


def unit_table(n: Any) -> Any:
    result = np.zeros((n, n))
    for i in range(n):
        result[i, i] = 1.0
    return result


def rows_of(a: Any, like: Any) -> Any:
    """`a` as each row of an array that has the shape of another one."""
    assert len(a) == like.shape[1], "the shapes of two arrays differ"
    result = np.zeros(like.shape)
    for i in range(like.shape[0]):
        for j in range(len(a)):
            result[i, j] = a[j]
    return result


def columns_of(a: Any, like: Any) -> Any:
    """`a` as each column of an array that has the shape of another one."""
    assert len(a) == like.shape[0], "the shapes of two arrays differ"
    result = np.zeros(like.shape)
    for i in range(len(a)):
        for j in range(like.shape[1]):
            result[i, j] = a[i]
    return result


def solution(a: Any, b: Any) -> Any:
    """`x` of `a @ x = b`, by elimination; of each column's items the largest first."""
    n = a.shape[0]
    assert n == a.shape[1], "the shapes of two arrays differ"
    assert n == len(b), "the shapes of two arrays differ"
    m, x = a.copy(), b.copy()
    for k in range(n):
        pivot = k
        for i in range(k + 1, n):
            if abs(m[i, k]) > abs(m[pivot, k]):
                pivot = i
        assert m[pivot, k] != 0.0, "a matrix is singular"
        if pivot != k:
            for j in range(k, n):
                m[k, j], m[pivot, j] = m[pivot, j], m[k, j]
            x[k], x[pivot] = x[pivot], x[k]
        for i in range(k + 1, n):
            factor = m[i, k] / m[k, k]
            for j in range(k + 1, n):
                m[i, j] -= factor * m[k, j]
            x[i] -= factor * x[k]
    for i in range(n - 1, -1, -1):
        total = x[i]
        for j in range(i + 1, n):
            total -= m[i, j] * x[j]
        x[i] = total / m[i, i]
    return x


def solutions(a: Any, b: Any) -> Any:
    result = np.zeros(b.shape)
    for k in range(b.shape[1]):
        right = np.zeros(b.shape[0])
        for i in range(b.shape[0]):
            right[i] = b[i, k]
        found = solution(a, right)
        for i in range(b.shape[0]):
            result[i, k] = found[i]
    return result


def inverse(a: Any) -> Any:
    return solutions(a, unit_table(a.shape[0]))

"""NumPy's functions of arrays of one dimension; what is done item by item is of these.

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

"""NumPy's functions of arrays of two dimensions."""

from typing import Any

import numpy as np


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


def as_column(a: Any) -> Any:
    result = np.zeros((len(a), 1))
    for i in range(len(a)):
        result[i, 0] = a[i]
    return result


def as_row(a: Any) -> Any:
    result = np.zeros((1, len(a)))
    for i in range(len(a)):
        result[0, i] = a[i]
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

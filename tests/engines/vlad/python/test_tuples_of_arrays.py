"""Arrays in tuples: items of those that no other name can reach are assigned in place.

Python runs the same functions. Where it would show a change under two names, a compiled
function is refused.
"""

from typing import Any

import numpy as np
import pytest

from retape import native


def two_at_once(x, n):  # type: ignore[no-untyped-def]
    b, c = np.zeros(n), np.ones(n)
    (d, e), s = (np.full(n, x), c.copy()), x
    b[0], e[1] = s, 2.0
    d[0] = x
    return np.sum(b * d) + np.sum(c * e)


def items_one_by_one(x, n):  # type: ignore[no-untyped-def]
    b, c = np.zeros(n), np.ones(n)
    d, e = c, np.full(n, x)
    b[0] = e[1] = x
    return np.sum(b * d * e)


def swapped(x, n):  # type: ignore[no-untyped-def]
    b, c = np.zeros(n), np.ones(n)
    for i in range(7):
        b[i % n] += x * c[(i + 1) % n]
        b, c = c, b
    return np.sum(b * c * c)


def returned(x, n):  # type: ignore[no-untyped-def]
    def made(c):
        b = c.copy()
        b[0] = x
        return b, np.full(n, x)

    c = np.ones(n)
    b, d = made(c)
    b[1], d[0] = d[1], b[0]
    return np.sum(b * c * d)


def from_left_to_right(x, n):  # type: ignore[no-untyped-def]
    a, i = np.zeros(n), 0
    for k in range(n):
        a[k] = x * (k + 1)
    a[i], i = 5.0, 1
    i, a[i] = 2, x * x
    (a[i], s), a[3] = (a[3], x), a[i]
    t = u, v = s, 2.0 * s
    a[0] = w = u + v
    for k in range(n // 2):
        a[k], a[n - 1 - k] = a[n - 1 - k], a[k]
    return a[0] + 10.0 * a[1] + 100.0 * a[2] + 1000.0 * a[3] + t[1] + w


ALIKE = [two_at_once, items_one_by_one, swapped, returned, from_left_to_right]


def also_in_another(x, n):  # type: ignore[no-untyped-def]
    b, c = np.zeros(n), np.ones(n)
    d, e = b, c * x
    d[0] = x
    return np.sum(b * e)


def twice(x, n):  # type: ignore[no-untyped-def]
    b, c = np.zeros(n), np.ones(n)
    b, c = c, c
    b[0] = x
    return np.sum(c)


def also_in_a_tuple(x, n):  # type: ignore[no-untyped-def]
    b, c = np.zeros(n), np.ones(n)
    b, t = c, (c, x)
    b[0] = x
    return np.sum(t[0])


def named_before(x, n):  # type: ignore[no-untyped-def]
    b, c = np.zeros(n), np.ones(n)
    z = b
    b, c = c, b
    c[0] = x
    return np.sum(z)


def given_and_returned(x, n):  # type: ignore[no-untyped-def]
    def made(u):
        return u, 2 * u

    c = np.ones(n)
    b, _ = made(c)
    b[0] = x
    return np.sum(c)


def returned_twice(x, n):  # type: ignore[no-untyped-def]
    def made(u):
        u = u.copy()
        return u, u

    b, c = made(np.ones(n))
    b[0] = x
    return np.sum(c)


def swapped_on_one_way(x, n):  # type: ignore[no-untyped-def]
    b, c = np.zeros(n), np.ones(n)
    for i in range(3):
        c[0] += x
        if i == 1:
            b, c = c, c
    return np.sum(b)


SHARED = [
    also_in_another, twice, also_in_a_tuple, named_before, given_and_returned,
    returned_twice, swapped_on_one_way,
]  # fmt: skip


@pytest.mark.parametrize("engine", ["interpreter", "compiled"])
@pytest.mark.parametrize("function", ALIKE)
def test_items_are_assigned_and_differentiated(function: Any, engine: Any) -> None:
    exact = function(1.5, 4)
    value, slope = native.value_and_grad(function, engine=engine)(1.5, 4)
    assert value == pytest.approx(exact, rel=1e-14)
    h = 1e-6
    quotient = (function(1.5 + h, 4) - function(1.5 - h, 4)) / (2 * h)
    assert slope == pytest.approx(quotient, rel=1e-7)


@pytest.mark.parametrize("function", SHARED)
def test_what_python_would_show_under_two_names_is_refused(function: Any) -> None:
    assert isinstance(float(function(1.5, 4)), float)
    with pytest.raises(native.CompileError, match="may have another name"):
        native.function(function, engine="interpreter")(1.5, 4)

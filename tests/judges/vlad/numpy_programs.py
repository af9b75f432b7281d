"""Programs as Numba's users write them, in NumPy's words: rows of the table.

Those of `RIGHT` have Python's value, type and gradient; those of `REFUSED` are refused
by name, with advice: NumPy would show a change by a second name, or has what ours has
not.
"""

from typing import Any

import numpy as np

# pyright: basic
# ruff: noqa: B905 - `zip` as Numba's users write it

U = np.array([0.2, 0.9, -0.4, 0.7, 0.55, 0.31])
V = np.array([0.5, -0.1, 0.8])
M = np.array([[2.0, 0.3, -0.2], [0.1, 1.5, 0.4], [-0.3, 0.2, 1.8]])
W = np.array([[0.4, -0.7, 0.9, 0.2], [0.3, 0.8, -0.5, 0.6]])

Row = tuple[Any, tuple[Any, ...]]

RIGHT: dict[str, Row] = {}
REFUSED: dict[str, Row] = {}


def right(*args: Any) -> Any:
    return lambda f: RIGHT.setdefault(f.__name__, (f, args))[0]


def refused(*args: Any) -> Any:
    return lambda f: REFUSED.setdefault(f.__name__, (f, args))[0]


# slices and parts


@right(U, 3)
def stencil(u, n):
    for _ in range(n):
        v = u.copy()
        v[1:-1] = u[1:-1] + 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
        u = v
    return (u**2).sum()


@right(U, 2)
def slices_of_all_kinds(u, k):
    a = u[::2].sum() + 2.0 * u[::-1][0] + 3.0 * u[-3:].sum() + u[k:100].sum()
    b = u[4:1:-1].sum() * 5.0 + u[-100:2].sum() + u[3:1].sum() + u[:-1:3].sum()
    return a * b + u[5:-100:-2][1] + len(u[2:]) * u[0]


@right(U)
def slices_assigned(u):
    v = np.zeros(8)
    v[1:7] = u
    v[::3] = 0.5
    v[6:2:-2] = u[:2] * 3.0
    v[2:4] += u[1]
    v[:2] *= u[2:4]
    return (v * np.linspace(1.0, 2.0, 8)).sum()


@right(U)
def overlapping(u):
    v = u.copy()
    v[1:] = v[:-1]
    v[:3] = v[3:] * v[:3]
    return (v * v * u).sum()


@right(M, 3)
def rows(m, n):
    s = 0.0
    for _ in range(n):
        for i in range(m.shape[0]):
            s += np.dot(m[i], m[i, :]) * 0.1 + m[-1][i]
    return s


@right(W)
def rows_and_columns(w):
    a = w.copy()
    a[0] = w[1] * 2.0
    a[:, 1] = w[:, 0] * w[:, -1]
    a[1, 2:] = 0.25
    a[1, :] += w[0]
    a[:, -1] = 2.0
    return (a * a).sum() + a[-1, 1:3].sum()


@right(W)
def blocks(w):
    a = np.zeros((3, 4))
    a[:2, 1:3] = w[:, ::2] * 2.0
    a[1:, 3:] = w[0, 1]
    a[2:] = w[:1] * w[1:]
    return (a * np.outer(np.ones(3), w[0])).sum() + a[1:, 1:-1].sum() ** 2


@right(W)
def a_part_of_a_row(w):
    return w[0, 1:3].sum() * w[1, ::-2][0] + w[1][1:][0]


@right(U)
def a_part_after_the_array_was_copied(u):
    v = u[1:4]
    u = u.copy()
    u[2] = 7.0
    return (v * u[1:4]).sum()


@right(W)
def transposed(w):
    return ((w.T @ w) ** 2).sum() + w.T[3, 1] * w.transpose()[0, 0] + w.ravel()[5]


# reductions


@right(U)
def reductions(u):
    return u.mean() * u.max() - u.min() * u.prod() + np.mean(u) + np.max(u) * np.min(u)


@right(W)
def reductions_of_tables(w):
    return w.mean() * w.max() + w.min() * np.linalg.norm(w) + np.mean(w) * w.size


@right(W)
def by_axis(w):
    a, b = w.sum(axis=0), np.sum(w, axis=1)
    c, d = w.mean(axis=-1), w.max(axis=0)
    e, f = w.min(axis=1), np.max(w, axis=-2)
    return (a * a * d * f).sum() + (b * b * c * e).sum()


@right(U)
def spread(u):
    return u.std() * u.var() + np.std(u) + np.var(u**2)


@right(U)
def cumulative(u):
    return (np.cumsum(u) * u).sum() + (u.cumsum() ** 2)[-1] + np.cumprod(u)[3]


@right(U)
def places_of_extremes(u):
    i, j = np.argmax(u), u.argmin()
    return u[i] * 3.0 + u[j] * i - j


@right(U)
def differences(u):
    return (np.diff(u) ** 2).sum()


@right(M)
def traces(m):
    return np.trace(m) * m.trace() + np.diagonal(m)[1]


# item by item


@right(U, 3)
def bounded(u, n):
    for _ in range(n):
        u = np.maximum(u * 0.9, 0.1) + np.where(u > 0.5, u, 0.2) * 0.01
    return u.sum()


@right(U)
def clipped(u):
    return (np.clip(u, -0.3, 0.6) * u).sum() + u.clip(0.0, 0.5)[0]


@right(U)
def masks(u):
    inner = (u > 0.0) & (u <= 0.6) | ~(u != 0.123) | (u >= 0.8)
    return (np.where(inner, u * u, -u) * np.where(0.3 < u, 1.0, u)).sum()


@right(U)
def a_mask(u):
    return u > 0.5


@right(W)
def masks_of_tables(w):
    return (np.where(w < 0.5, w * w, np.minimum(w, 0.7)) * w).sum()


@right(U)
def a_loop_over_a_mask(u):
    mask = u > 0.5
    total = 0.0
    for i in range(len(mask)):
        if mask[i]:
            total += u[i] ** 2
    return total


# broadcasting


@right(W)
def normalised(w):
    for _ in range(2):
        w = w / (1.0 + w.sum(axis=1)[:, None] ** 2)
    return (w * w).sum()


@right(W)
def centred(w):
    c = w - w.mean(axis=0)
    return (c * c * w.sum(axis=0)[None, :]).sum() + (w.mean(axis=1)[:, None] * w).sum()


@right(V)
def columns_by_themselves(v):
    a = 2.0 * v[:, None] - v[:, np.newaxis] ** 2
    return (a * a).sum() + a[1, 0]


@right(W)
def broadcast_again_and_again(w):
    for _ in range(2):
        w = (w - w.mean(axis=0)) / (1.0 + (w * w).sum(axis=1)[:, None]) + w[0]
    a = w[0][:, None] * w[1][None, :] + w[0][:, None] * w[0] - w[1][None, :]
    return (a * a).sum()


# made anew


@right(V)
def likes(v):
    a, b = np.zeros_like(v), np.ones_like(v) * v
    c, d = np.full_like(v, 2.5), np.empty_like(v)
    for i in range(len(v)):
        a[i] = b[i] * c[i]
        d[i] = a[i] ** 2
    return (a * d).sum()


@right(M)
def likes_of_tables(m):
    a = np.zeros_like(m) + np.eye(3) * m + np.identity(3)
    return (a @ np.ones_like(m)).sum()


@right(V, 5)
def spaced(v, n):
    t = np.linspace(0.0, v[0] + 1.0, n)
    return (t * t).sum() + np.append(t, v)[-1]


# linear algebra


@right(M, 3)
def solved(m, n):
    x = np.ones(m.shape[0])
    for _ in range(n):
        x = np.linalg.solve(m, x) + 0.1
    return x.sum()


@right(M)
def solved_for_many(m):
    return (np.linalg.solve(m, np.eye(3) + m * m) * m).sum() + np.linalg.inv(m)[0, 2]


@right(np.array([[0.0, 2.0], [1.0, 0.5]]))
def solved_with_a_pivot(a):
    return np.linalg.solve(a, np.ones(2)).sum()


@right(V)
def norms(v):
    for _ in range(3):
        v = v / np.linalg.norm(v) + 0.1
    return np.sqrt((v**2).sum()) + np.linalg.norm(v)


@right(V, U)
def products(v, u):
    return np.outer(v, u)[2, 4] * np.dot(v, v) + (np.outer(v, v) @ v).sum() + v.dot(v)


# loops


@right(U, 3)
def pairs(u, n):
    a, b = u[0], u[1]
    for i, w in enumerate(u):
        for p, q in zip(u, u):
            a, b = b * 0.5 + p * w, a * 0.5 + q * 0.1 * i
    return a + b * n


@right(U, W)
def loops_of_all_kinds(u, w):
    s = 0.0
    for i, (a, b) in enumerate(zip(u, reversed(u))):
        s = s * 0.5 + a * b * i
    for i in reversed(range(len(u))):
        s = s * 0.9 + u[i]
    for i, a in zip(range(2, 5), u):
        s += a * i
    for row in w:
        s += row.sum() * row[0]
    for i, row in enumerate(w):
        s += row[i] ** 2
    return s


@right(U)
def an_item_in_reverse(u):
    total = 0.0
    for last in reversed(u):
        total = last
    return total * 2.0


# what is written in place


@right(M)
def cholesky(m):
    a = m @ m.T
    n = a.shape[0]
    low = np.zeros_like(a)
    for j in range(n):
        low[j, j] = np.sqrt(a[j, j] - (low[j, :j] ** 2).sum())
        for i in range(j + 1, n):
            low[i, j] = (a[i, j] - np.dot(low[i, :j], low[j, :j])) / low[j, j]
    return np.trace(low)


@right(U, 4)
def swapped(u, n):
    u, v = u.copy(), u.copy()
    for _ in range(n):
        for i in range(1, len(u) - 1):
            v[i] = u[i] + 0.1 * (u[i - 1] - 2.0 * u[i] + u[i + 1])
        u, v = v, u
    return u


@right(U, 3)
def a_pair_of_arrays(u, n):
    a, b = u.copy(), np.cumsum(u)
    for k in range(n):
        a[k] = b[k] * a[k - 1]
        b[1:] = a[:-1] + b[1:]
    return a, (b, n), a.sum() > 0.0


@right(U)
def the_array_that_was_given(u):
    return u


# refused: a second name would see what is written, or NumPy's is another thing


@refused(U)
def a_view_is_written(u):
    u = u.copy()
    v = u[1:]
    v[0] = 5.0
    return u.sum()


@refused(U)
def what_has_a_view_is_written(u):
    u = u.copy()
    v = u[1:]
    u[1] = 5.0
    return v.sum()


@refused(W)
def a_row_is_a_view(w):
    w = w.copy()
    r = w[0]
    w[0, 0] = 3.0
    return r.sum()


@refused(W)
def a_transpose_is_a_view(w):
    w = w.copy()
    t = w.T
    w[0, 1] = 3.0
    return t.sum()


@refused(W)
def a_raveled_array_is_a_view(w):
    w = w.copy()
    t = w.ravel()
    t[0] = 3.0
    return w.sum()


@refused(U)
def a_view_in_a_tuple(u):
    u = u.copy()
    t = (u[1:], 2.0)
    u[1] = 5.0
    return t[0].sum()


@refused(U)
def a_view_that_was_chosen(u):
    u = u.copy()
    t = u[1:] if u[0] > 0.0 else u[:-1]
    u[1] = 5.0
    return t.sum()


def _beginning(u):
    return u[:2]


@refused(U)
def a_view_from_a_call(u):
    u = u.copy()
    t = _beginning(u)
    u[1] = 5.0
    return t.sum()


@refused(U)
def a_view_that_a_function_took(u):
    u = u.copy()
    f = lambda x, v=u[1:]: v.sum() * x  # noqa: E731
    u[1] = 5.0
    return f(2.0)


@refused(U)
def a_view_from_a_loop(u):
    u = u.copy()
    t = u.copy()
    for _ in range(2):
        t = u[1:]
    u[1] = 5.0
    return t.sum()


@refused(W)
def a_row_of_a_loop_is_a_view(w):
    w = w.copy()
    for row in w:
        row[0] = 1.0
    return w.sum()


@refused(W)
def a_row_of_a_loop_is_a_second_name(w):
    w = w.copy()
    row = np.zeros(4)
    for row in w:  # noqa: B007 - it is read after the loop
        pass
    w[1, 0] = 7.0
    return row.sum()


@refused(U, W)
def another_shape_in_place(u, w):
    v = w[0].copy()
    v += w
    return v.sum()


@refused(U)
def a_choice_of_ints(u):
    return np.where(u > 0.5, 1, 0)


@refused(W, 1)
def an_axis_that_running_tells(w, n):
    return w.sum(axis=n - 1).sum()


@refused(U)
def an_axis_of_what_has_none(u):
    return np.sin(u, axis=0).sum()


@refused(U, 2)
def an_outer_product_of_ints(u, n):
    return np.outer(n, n)


@refused(U)
def an_argument_is_written_by_a_slice(u):
    u[1:3] = 0.0
    return u.sum()


@refused(U)
def lengths_differ(u):
    v = u.copy()
    v[1:3] = u
    return v.sum()


@refused(W)
def shapes_differ(w):
    return (np.maximum(w, w.T) * 1.0).sum()


@refused(U)
def a_mask_as_an_index(u):
    return u[u > 0.0].sum()


@refused(U)
def a_mask_in_arithmetic(u):
    return ((u > 0.0) * u).sum()


@refused(np.ones((2, 2)))
def singular(a):
    return np.linalg.solve(a, np.ones(2)).sum()


@refused(np.zeros(0))
def nothing_is_largest(a):
    return a.max()


@refused(U)
def a_step_of_no_size(u):
    return u[::0].sum()

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


# rows and columns that have names


@right(W)
def rows_made_of_one_length(w):
    middle = w.mean(axis=1, keepdims=True)
    width = np.sqrt(np.sum((w - middle) ** 2, axis=1, keepdims=True))
    return np.sum(((w - middle) / width)[:, 0])


@right(W)
def soft_choice_of_each_column(w):
    power = np.exp(w - w.max(axis=0, keepdims=True))
    share = power / power.sum(axis=0, keepdims=True)
    return np.sum(share * w * share)


@right(V, U)
def table_of_a_column_and_a_row(v, u):
    column, row = v[:, None], u[None, :]
    table = column * row + 2.0 * column - row / 3.0
    return np.sum(table * table)


@right(np.array([0.4, -0.7]), W)
def column_by_reshape(v, w):
    column, row = v.reshape(-1, 1), w[0].reshape(1, 4)
    both = np.sum(column * w * row) + np.sum(column + column)
    return both + np.sum((column * row)[0]) + np.sum((row + w[1]) * w)


@right(W, 3)
def column_in_a_loop(w, n):
    column = w.sum(axis=1, keepdims=True)
    for _ in range(n):
        column = column * 0.5 + np.sin(column)
    return np.sum(w / (1.0 + column * column)) + column.shape[1] + np.sum(column.T)


@right(W, 3)
def column_and_then_a_product(w, n):
    x = w[0][:, None]
    for _ in range(n):
        x = np.tanh(w.T @ (w @ x))
    return np.sum(x * x)


@right(W)
def column_given_and_returned(w):
    def scaled(x):
        size = np.sqrt((x * x).sum(axis=1, keepdims=True))
        return x / size, size

    y, size = scaled(w)
    z, other = scaled(y + size)
    return np.sum(y * z) + np.sum(other)


@right(W)
def column_item_by_item(w):
    most = np.maximum(w.sum(axis=1, keepdims=True), 0.5)
    chosen = np.where(w > w.mean(axis=1, keepdims=True) - 0.05, w, most)
    return np.sum(chosen * np.minimum(w, w[0] + 0.01))


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


def unchanged(a, dtype=None):
    return a


@right(U)
def a_dtype_that_a_function_has(u):
    a = u.copy()
    b = unchanged(a, dtype=float)
    return (b * u).sum()


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


@right(U)
def a_part_after_the_array_was_copied(u):
    v = u[1:4]
    u = u.copy()
    u[2] = 7.0
    return (v * u[1:4]).sum()


# reductions


# item by item


@right(U, 3)
def bounded(u, n):
    for _ in range(n):
        u = np.maximum(u * 0.9, 0.1) + np.where(u > 0.5, u, 0.2) * 0.01
    return u.sum()


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
def broadcast_again_and_again(w):
    for _ in range(2):
        w = (w - w.mean(axis=0)) / (1.0 + (w * w).sum(axis=1)[:, None]) + w[0]
    a = w[0][:, None] * w[1][None, :] + w[0][:, None] * w[0] - w[1][None, :]
    return (a * a).sum()


# made anew


# linear algebra


@right(M, 3)
def solved(m, n):
    x = np.ones(m.shape[0])
    for _ in range(n):
        x = np.linalg.solve(m, x) + 0.1
    return x.sum()


@right(V)
def norms(v):
    for _ in range(3):
        v = v / np.linalg.norm(v) + 0.1
    return np.sqrt((v**2).sum()) + np.linalg.norm(v)


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


# refused: a second name would see what is written, or NumPy's is another thing


@refused(W)
def a_row_of_a_loop_is_a_view(w):
    w = w.copy()
    for row in w:
        row[0] = 1.0
    return w.sum()


@refused(U, W)
def another_shape_in_place(u, w):
    v = w[0].copy()
    v += w
    return v.sum()


@refused(U)
def an_argument_is_written_by_a_slice(u):
    u[1:3] = 0.0
    return u.sum()


@refused(U)
def lengths_differ(u):
    v = u.copy()
    v[1:3] = u
    return v.sum()

"""One expression each, in NumPy's words and Python's: rows of the table.

Those of `RIGHT` have Python's value, type and gradient, those of `REFUSED` are refused
by name: NumPy's is another thing, or has no value either.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np

from tests.judges.vlad.judging import loaded
from tests.judges.vlad.numpy_programs import M, U, V, W
from tests.judges.vlad.value_programs import Point, T

VALUES = {"u": U, "v": V, "w": W, "m": M, "t": T, "n": 2, "x": 0.5}
VALUES |= {"p": Point(1.0, 2.0), "none": np.zeros(0), "even": np.ones((2, 2))}
VALUES["pivot"] = np.array([[0.0, 2.0], [1.0, 0.5]])

HEAD = """
import math

import numpy as np
from tests.judges.vlad.value_programs import HOOK, Point


"""

RIGHT = (
    # parts
    "u",
    "u > 0.5",
    "w[0, 1:3].sum() * w[1, ::-2][0] + w[1][1:][0]",
    "((w.T @ w) ** 2).sum() + w.T[3, 1] * w.transpose()[0, 0] + w.ravel()[5]",
    "((2.0 * v[:, None] - v[:, np.newaxis] ** 2) ** 2).sum() + v[:, None][1, 0]",
    "(t.reshape(6, 4) @ t.reshape(6, 4).T).sum() + t.reshape(-1)[5] * t.ravel()[7]",
    "np.reshape(t, (2, -1))[1, 3] * t.reshape((3, 8))[2].sum()",
    # reductions
    "u.mean() * u.max() - u.min() * u.prod() + np.mean(u) + np.max(u) * np.min(u)",
    "w.mean() * w.max() + w.min() * np.linalg.norm(w) + np.mean(w) * w.size",
    "(sum(w) ** 2 * sum(t)[0, 0]).sum() * sum(u)",
    "w.sum(axis=None) * np.max(w, axis=None) * np.sum(w, None)",
    "(w.sum(axis=0) ** 2 * w.max(axis=0) * np.max(w, axis=-2)).sum()",
    "(np.sum(w, axis=1) ** 2 * w.mean(axis=-1) * w.min(axis=1)).sum()",
    "u.std() * u.var() + np.std(u) + np.var(u**2)",
    "(np.cumsum(u) * u).sum() + (u.cumsum() ** 2)[-1] + np.cumprod(u)[3]",
    "u[np.argmax(u)] * 3.0 + u[u.argmin()] * np.argmax(u) - u.argmin()",
    "(np.diff(u) ** 2).sum()",
    "np.trace(m) * m.trace() + np.diagonal(m)[1]",
    "t.sum(axis=0).sum() * np.mean(t, axis=1)[1, 2] + (t.max(2) ** 2).sum()",
    "np.cumsum(t, axis=-1)[1, 2, 3] + t.std() * (t / t.sum(axis=2)[0, 0]).mean()",
    "(w / (2.0 + w.sum(axis=1, keepdims=True))).sum()",
    "(w * w.mean(axis=0, keepdims=True)).sum() * t.sum(axis=2, keepdims=True)[0, 0, 0]",
    "(np.cumsum(w, axis=0) * w * np.prod(w) + np.var(w, axis=1)[0]).sum()",
    # item by item
    "(np.clip(u, -0.3, 0.6) * u).sum() + u.clip(0.0, 0.5)[0]",
    "np.clip(x, 0.1, u[0]) * np.hypot(x, v[0]) + np.hypot(u, np.hypot(u, x)).sum()",
    "(np.arctan(w) * abs(w)).sum() * np.arctan2(x, u)[1] + np.arctan(x) * abs(-n)",
    "(np.where(w < 0.5, w * w, np.minimum(w, 0.7)) * w).sum()",
    "np.where((u > 0.0) & (u <= 0.6) | ~(u != 0.123) | (u >= 0.8), u * u, -u).sum()",
    "np.where(0.3 < u, 1.0, u).sum() * np.where(u < 0.5, u, 0.2)[0]",
    "((w - w.mean(axis=0)) ** 2 * w.sum(axis=0)[None, :]).sum() + w.max()",
    "(w.mean(axis=1)[:, None] * w).sum()",
    # made anew, and linear algebra
    "((np.zeros_like(m) + np.eye(3) * m + np.identity(3)) @ np.ones_like(m)).sum()",
    "(np.full_like(v, 2.5) * np.ones_like(v) * v + np.empty_like(v) * 0.0).sum()",
    "np.linalg.solve(pivot, np.ones(2)).sum()",
    "(np.linspace(0.0, v[0] + 1.0, 5) ** 2).sum() + np.append(u, v)[-1]",
    "(np.linalg.solve(m, np.eye(3) + m * m) * m).sum() + np.linalg.inv(m)[0, 2]",
    "np.outer(v, u)[2, 4] * np.dot(v, v) + (np.outer(v, v) @ v).sum() + v.dot(v)",
    # records of the outside
    "HOOK.rate * x + HOOK.force(x, 1.0) + HOOK.mass",
)

REFUSED = (
    "np.where(u > 0.5, 1, 0)",
    "np.where(n, x, 0.0)",
    "math.isfinite(u)",
    "np.copy(x)",
    "np.zeros((n - 4, n - 5)).sum()",
    "w.sum(axis=n - 1).sum()",
    "np.sin(u, axis=0).sum()",
    "np.outer(n, n)",
    "(np.maximum(w, w.T) * 1.0).sum()",
    "(t + t[0]).sum()",
    "t.reshape(5, 5).sum()",
    "t[0, 3, 0]",
    "t[:, 3].sum()",
    "u[u > 0.0].sum()",
    "((u > 0.0) * u).sum()",
    "u[::0].sum()",
    "np.linalg.solve(even, np.ones(2)).sum()",
    "none.max()",
    "[x, (1.0, 2.0)]",
    "[x] + [x]",
    "sum([x, x][1:])",
    "{'x': x}['y']",
    "{1: x}[1]",
    "p.z",
    "Point(x, x, x, x)",
)


def function_of(expression: str, folder: Path) -> tuple[Any, tuple[Any, ...]]:
    """A function of the names that an expression has, and their values."""
    names = [name for name in VALUES if re.search(rf"\b{name}\b", expression)]
    text = f"{HEAD}def f({', '.join(names)}):\n    return {expression}\n"
    return loaded(folder, "expression", text).f, tuple(VALUES[n] for n in names)

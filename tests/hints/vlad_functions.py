"""Hints on Python functions that are compiled."""

# ruff: noqa: F401 - the statements of the rows use what is imported

import dataclasses
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import numpy as np

from retape import native
from tests.hints.rows import Row
from tests.judges.vlad.judging import judge

TWO, THREE = np.array([2, 0]), np.arange(3.0)
POINT = "@dataclasses.dataclass\nclass Point:\n    a: float\n\n\n"
FIVE = np.array([1.0, 2.0]).reshape(1, 1, 1, 1, 2)
MASKED = np.ma.masked_array([1.0, 2.0])


def of(f: Callable[..., Any], *args: Any) -> Any:
    """What a compiled function gives."""
    return native.function(f, engine="interpreter")(*args)


def agrees(f: Callable[..., Any], *args: Any) -> bool:
    """A compiled function, and its gradient by all floats, are those of Python."""
    judge(f, args, tuple(k for k, each in enumerate(args) if type(each) is float))
    return True


def jitted(shape: tuple[int, ...]) -> Any:
    """A compiled function in a function of JAX."""
    import jax

    made = native.to_jax(
        native.function(lambda a: 2.0 * a, engine="interpreter"), shape=shape
    )
    return jax.jit(made)(np.float32([1, 2]))


def row(says: str, args: str, wrong: str, right: str, written: str = "") -> Row:
    """A function `f` that is refused, and the same as the hint says."""
    return Row(
        says, f"{wrong}\nof(f, {args})", f"{right}\nagrees(f, {args})", written=written
    )


ROWS = [
    row(
        "pass a function written with `def`",
        "1.5",
        "f = math.sin\nnative.grad(f, engine='interpreter')(1.5)",
        "def f(x):\n    return math.sin(x)\n",
    ),
    Row(
        "pass the right `shape`",
        "jitted(shape=(3,))",
        "jitted(shape=(2,))",
        "[2.0, 4.0]",
        error=Exception,
    ),
    Row(
        "give `None`",
        "def f(a, n):\n    return a[n] * a[n]\n"
        "native.jvp(f, (THREE, 2), (THREE, 1.0), engine='interpreter')",
        "def f(a, n):\n    return a[n] * a[n]\n"
        "native.jvp(f, (THREE, 2), (THREE, None), engine='interpreter')",
        "[4.0, 8.0]",
    ),
    Row(
        "pass `numpy.asarray(a)`",
        "def f(a):\n    return a[0] + a[1]\na = MASKED\nof(f, a)",
        "def f(a):\n    return a[0] + a[1]\na = MASKED\nagrees(f, numpy.asarray(a))",
    ),
    Row(
        "pass `a.astype(float)`",
        "a = np.array([2**60, 1])\nof(lambda a: a[1], a)",
        "a = np.array([2**60, 1])\nagrees(lambda a: a[1], a.astype(float))",
    ),
    Row(
        "pass `a.astype(float)`",
        "a = np.float32([2, 1])\nof(lambda a: a[1], a)",
        "a = np.float32([2, 1])\nagrees(lambda a: a[1], a.astype(float))",
    ),
    Row(
        "pass `a.astype(float)`",
        "a = np.array([2, 1])\nof(lambda a: (a + 1).sum(), a)",
        "a = np.array([2, 1])\nagrees(lambda a: (a + 1).sum(), a.astype(float))",
    ),
    row(
        "take `int(a[i])`",
        "THREE, TWO",
        "def f(a, i):\n    return a[0] * (i + 1).sum()",
        "def f(a, i):\n    return a[0] * (int(i[0]) + 1)",
        written="int(i[0])",
    ),
    row(
        "use `int(x)`",
        "THREE, 1.5",
        "def f(a, x):\n    return a[x > 1.0]",
        "def f(a, x):\n    return a[int(x > 1.0)]",
        written="int(x > 1.0)",
    ),
    row(
        "use `int(x)`",
        "THREE, 1.5",
        "def f(a, x):\n    return a[x]",
        "def f(a, x):\n    return a[int(x)]",
    ),
    row(
        "use `int(n)`",
        "1.5, 3.5",
        "def f(x, n):\n    return np.zeros(n).size + x",
        "def f(x, n):\n    return np.zeros(int(n)).size + x",
    ),
    row(
        "write its `def`",
        "1.5, 3",
        """
def f(x, n):
    def even(k):
        return x if k == 0 else odd(k - 1)

    half = 0.5 * x

    def odd(k):
        return half if k == 0 else even(k - 1)

    return even(n)
""",
        """
def f(x, n):
    half = 0.5 * x

    def even(k):
        return x if k == 0 else odd(k - 1)

    def odd(k):
        return half if k == 0 else even(k - 1)

    return even(n)
""",
    ),
    row(
        "write its `def`",
        "1.5, 3",
        """
def f(x, n):
    even = lambda k: x if k == 0 else odd(k - 1)
    odd = lambda k: -x if k == 0 else even(k - 1)
    return even(n)
""",
        """
def f(x, n):
    def even(k):
        return x if k == 0 else odd(k - 1)

    def odd(k):
        return -x if k == 0 else even(k - 1)

    return even(n)
""",
    ),
    row(
        f"write a float, such as `{float(2**60)!r}`",
        "2",
        f"def f(x):\n    return x + {2**60}",
        f"def f(x):\n    return x + {float(2**60)!r}",
    ),
    row(
        "write `int(x)`",
        "1.5",
        "def f(y):\n    x = y > 1.0\n    return np.sqrt(x) * y",
        "def f(y):\n    x = y > 1.0\n    return np.sqrt(int(x)) * y",
    ),
    row(
        "write it as a float, or `float(x)`",
        "1.5, 3",
        "def f(y, n):\n    return np.full(n, 2).sum() * y",
        "def f(y, n):\n    x = 2\n    return np.full(n, float(x)).sum() * y",
    ),
    row(
        "write it as a float",
        "1.5, 3",
        "def f(x, n):\n    return np.full(n, 2).sum() * x",
        "def f(x, n):\n    return np.full(n, 2.0).sum() * x",
    ),
    row(
        "compare this with 0",
        "1.5, 3",
        "def f(x, n):\n    return x if n and x else 2.0 * x",
        "def f(x, n):\n    return x if n != 0 and x != 0 else 2.0 * x",
    ),
    row(
        "write `int(x)` or `float(x)`",
        "1.5, 3",
        "def f(y, n):\n    return min(y, n > 1)",
        "def f(y, n):\n    x = n > 1\n    return min(y, float(x))",
    ),
    Row(
        "call `df`",
        """
def f(x):
    return x**3

def g(x):
    return native.grad(f)(x)

of(g, 1.5)
""",
        """
def f(x):
    return x**3

df = native.grad(f, engine="interpreter")

def g(x):
    return df(x)

agrees(g, 1.5)
""",
    ),
    row(
        "write a list, `[... for ...]`",
        "np.arange(3.0)",
        "def f(a):\n    xs = (w * w for w in a)\n    return xs",
        "def f(a):\n    xs = [w * w for w in a]\n    return xs[0] + xs[1]",
    ),
    row(
        "write `xs.append(x)`",
        "1.5",
        "def f(x):\n    xs = [x]\n    xs.append(x, x)\n    return xs[0]",
        "def f(x):\n    xs = [x]\n    xs.append(x * x)\n    return xs[1]",
        written="xs.append(x",
    ),
    row(
        "write `{} = dataclasses.replace({}, {}=...)`",
        "1.5",
        POINT + "def f(x):\n    p = Point(x)\n    p.a = x * x\n    return p.a",
        POINT + "def f(x):\n    p = Point(x)\n"
        "    p = dataclasses.replace(p, a=x * x)\n    return p.a",
    ),
    row(
        "write `dtype=float`",
        "3",
        "def f(n):\n    return np.zeros(n, dtype=int)[0]",
        "def f(n):\n    return np.zeros(n, dtype=float)[0]",
    ),
    row(
        "write a loop over it, or `np.array(...)`",
        "1.5",
        "def f(x):\n    xs = [x, x]\n    return xs * 2.0",
        "def f(x):\n    xs = [x, x]\n    return (np.array(xs) * 2.0)[1]",
    ),
    row(
        "give both the same number by `a.reshape(...)`",
        "np.ones((1, 1, 2)), np.arange(2.0)",
        "def f(a, b):\n    return (a + b)[0, 0, 1]",
        "def f(a, b):\n    return (a + b.reshape(1, 1, 2))[0, 0, 1]",
        written=".reshape(",
    ),
    Row(
        "pass at most {}, by `a.reshape(...)`",
        "def f(a):\n    return a[0] + a[1]\n\nof(f, FIVE)",
        "def f(a):\n    return a[0] + a[1]\n\nof(f, FIVE.reshape(2))",
        "3.0",
        written=".reshape(",
    ),
    row(
        "by a default: `x=x`",
        "1.5",
        "def f(x):\n    g = lambda y: x * y\n    x = 2.0\n    return g(x)",
        "def f(x):\n    g = lambda y, x=x: x * y\n    x = 2.0\n    return g(x)",
    ),
    row(
        "assign the variable in a line of its own",
        "1.5",
        "def f(x):\n    return (y := x * x) + y",
        "def f(x):\n    y = x * x\n    return y + y",
    ),
    row(
        "write a loop over its items, or `np.where(condition, a, b)`",
        "THREE, THREE - 1.0",
        "def f(a, b):\n    return a[a > b].sum()",
        "def f(a, b):\n    condition = a > b\n"
        "    return np.where(condition, a, b).sum()",
    ),
    row(
        "write `np.where(mask, 1.0, 0.0)`",
        "THREE",
        "def f(a):\n    mask = a > 1.0\n    return (mask * 2.0).sum()",
        "def f(a):\n    mask = a > 1.0\n"
        "    return (np.where(mask, 1.0, 0.0) * 2.0).sum()",
    ),
    row(
        "use `np.zeros`",
        "1.5",
        "def f(x):\n    return np.zeros_like(x) + x",
        "def f(x):\n    return np.zeros(1)[0] + x",
    ),
    row(
        "use `where`",
        "THREE",
        "def f(a):\n    mask = a > 1.0\n    s = 0.0\n    for each in mask:\n"
        "        s += 1.0\n    return s",
        "def f(a):\n    return np.where(a > 1.0, 1.0, 0.0).sum()",
    ),
    row(
        "loop over `range(len(a))`",
        "THREE",
        """
def f(a):
    a = a.copy()
    s = 0.0
    for x in a:
        a[0] = 1.0
        s += x
    return s
""",
        """
def f(a):
    a = a.copy()
    s = 0.0
    for i in range(len(a)):
        a[0] = 1.0
        s += a[i]
    return s
""",
    ),
    row(
        "write `b = a.copy()`",
        "THREE",
        """
def f(x):
    a = b = x.copy()
    a[0] = 7.0
    return a[0] + b[1]
""",
        """
def f(x):
    a = x.copy()
    b = a.copy()
    a[0] = 7.0
    return a[0] + b[1]
""",
    ),
    row(
        "write `a = a.copy()`",
        "THREE",
        "def f(a):\n    a[0] = 7.0\n    return a[0] + a[1]",
        "def f(a):\n    a = a.copy()\n    a[0] = 7.0\n    return a[0] + a[1]",
    ),
    row(
        "write `a = a ...`",
        "THREE",
        "def f(a):\n    a += 1.0\n    return a[0] + a[1]",
        "def f(a):\n    a = a + 1.0\n    return a[0] + a[1]",
    ),
    row(
        "use `if`",
        "1.5, 2",
        """
def f(x, n):
    match n:
        case 1:
            return x
        case _:
            return x * x
""",
        """
def f(x, n):
    if n == 1:
        return x
    return x * x
""",
    ),
    Row(
        'use `engine="interpreter"`',
        "without_compiler(monkeypatch, tmp_path)\n"
        "native.function(lambda x: x * x)(1.5)",
        "without_compiler(monkeypatch, tmp_path)\n"
        'native.function(lambda x: x * x, engine="interpreter")(1.5)',
        "1.5 * 1.5",
    ),
    Row(
        "Set `${}`",
        "without_compiler(monkeypatch, tmp_path)\nsquared()",
        "without_compiler(monkeypatch, tmp_path)\n"
        "monkeypatch.setenv('CC', hurried(tmp_path))\nsquared()",
        "1.5 * 1.5",
        written="'CC'",
        slow=True,
    ),
    Row(
        "set `${}`",
        "monkeypatch.setenv('CC', 'false')\nsquared()",
        "monkeypatch.setenv('CC', hurried(tmp_path))\nsquared()",
        "1.5 * 1.5",
        written="'CC'",
        error=RuntimeWarning,
        slow=True,
    ),
    Row(
        "set `$RETAPE_CACHE`",
        "monkeypatch.setenv('CC', hurried(tmp_path))\n"
        "monkeypatch.setenv('RETAPE_CACHE', '/dev/null/cache')\nsquared()",
        "monkeypatch.setenv('RETAPE_CACHE', str(tmp_path))\nsquared()",
        "1.5 * 1.5",
        written="'RETAPE_CACHE'",
        error=RuntimeWarning,
        slow=True,
    ),
]


PROGRAMS = os.environ["PATH"]


def hurried(folder: Path) -> str:
    """A compiler of C that thinks little, wherever programs are looked for."""
    made = folder / "hurried"
    made.write_text(f'#!/bin/sh\nPATH="{PROGRAMS}" exec cc "$@" -O0\n')
    made.chmod(0o700)
    return str(made)


def squared() -> Any:
    """What a function gives that is compiled anew."""
    return native.function(lambda x: x * x)(1.5)


def without_compiler(monkeypatch: Any, folder: Any) -> None:
    """No compiler of C, and nothing that was compiled before."""
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("CC", str(folder / "cc"))
    monkeypatch.setenv("RETAPE_CACHE", str(folder / "cache"))

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
from tests.hints.rows import rows
from tests.judges.vlad.judging import judge

TWO, THREE = np.array([2, 0]), np.arange(3.0)
FIVE = np.array([1.0, 2.0]).reshape(1, 1, 1, 1, 2)
MASKED = np.ma.masked_array([1.0, 2.0])


@dataclasses.dataclass
class Point:
    a: float


def product(a: Any, n: Any) -> Any:
    return a[n] * a[n]


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


ROWS = rows(
    "True",
    r"""
native.grad(math.sin, engine='interpreter')(1.5)
says: pass a function written with `def`
def f(x):
    return math.sin(x)
agrees(f, 1.5)

jitted(shape=(3,))
Exception says: pass the right `shape`
jitted(shape=(2,))
gives: [2.0, 4.0]

native.jvp(product, (THREE, 2), (THREE, 1.0), engine='interpreter')
says: give `None`
native.jvp(product, (THREE, 2), (THREE, None), engine='interpreter')
gives: [4.0, 8.0]

of(lambda a: a[0] + a[1], MASKED)
says: pass `numpy.asarray(a)`
a = MASKED
agrees(lambda a: a[0] + a[1], numpy.asarray(a))

a = np.array([2**60, 1])
of(lambda a: a[1], a)
says: pass `a.astype(float)`
a = np.array([2**60, 1])
agrees(lambda a: a[1], a.astype(float))

a = np.float32([2, 1])
of(lambda a: a[1], a)
says: pass `a.astype(float)`
a = np.float32([2, 1])
agrees(lambda a: a[1], a.astype(float))

a = np.array([2, 1])
of(lambda a: (a + 1).sum(), a)
says: pass `a.astype(float)`
a = np.array([2, 1])
agrees(lambda a: (a + 1).sum(), a.astype(float))

of(lambda a, i: a[0] * (i + 1).sum(), THREE, TWO)
says: take `int(a[i])` as: int(i[0])
agrees(lambda a, i: a[0] * (int(i[0]) + 1), THREE, TWO)

of(lambda a, x: a[x > 1.0], THREE, 1.5)
says: use `int(x)` as: int(x > 1.0)
agrees(lambda a, x: a[int(x > 1.0)], THREE, 1.5)

of(lambda a, x: a[x], THREE, 1.5)
says: use `int(x)`
agrees(lambda a, x: a[int(x)], THREE, 1.5)

of(lambda x, n: np.zeros(n).size + x, 1.5, 3.5)
says: use `int(n)`
agrees(lambda x, n: np.zeros(int(n)).size + x, 1.5, 3.5)

def f(x, n):
    def even(k):
        return x if k == 0 else odd(k - 1)
    half = 0.5 * x
    def odd(k):
        return half if k == 0 else even(k - 1)
    return even(n)
of(f, 1.5, 3)
says: write its `def`
def f(x, n):
    half = 0.5 * x
    def even(k):
        return x if k == 0 else odd(k - 1)
    def odd(k):
        return half if k == 0 else even(k - 1)
    return even(n)
agrees(f, 1.5, 3)

of(lambda x: x + 1152921504606846976, 2)
says: write a float, such as `1.152921504606847e+18`
agrees(lambda x: x + 1.152921504606847e+18, 2)

def f(y):
    x = y > 1.0
    return np.sqrt(x) * y
of(f, 1.5)
says: write `int(x)`
def f(y):
    x = y > 1.0
    return np.sqrt(int(x)) * y
agrees(f, 1.5)

of(lambda y, n: np.full(n, 2).sum() * y, 1.5, 3)
says: write it as a float, or `float(x)`
def f(y, n):
    x = 2
    return np.full(n, float(x)).sum() * y
agrees(f, 1.5, 3)
says: write it as a float
agrees(lambda y, n: np.full(n, 2.0).sum() * y, 1.5, 3)

of(lambda x, n: x if n and x else 2.0 * x, 1.5, 3)
says: compare this with 0
agrees(lambda x, n: x if n != 0 and x != 0 else 2.0 * x, 1.5, 3)

of(lambda y, n: min(y, n > 1), 1.5, 3)
says: write `int(x)` or `float(x)`
def f(y, n):
    x = n > 1
    return min(y, float(x))
agrees(f, 1.5, 3)

def f(x):
    return x**3
of(lambda x: native.grad(f)(x), 1.5)
says: call `df`
def f(x):
    return x**3
df = native.grad(f, engine="interpreter")
agrees(lambda x: df(x), 1.5)

of(lambda a: (w * w for w in a), THREE)
says: write a list, `[... for ...]`
def f(a):
    xs = [w * w for w in a]
    return xs[0] + xs[1]
agrees(f, THREE)

def f(x):
    xs = [x]
    xs.append(x, x)
    return xs[0]
of(f, 1.5)
says: write `xs.append(x)` as: xs.append(x
def f(x):
    xs = [x]
    xs.append(x * x)
    return xs[1]
agrees(f, 1.5)

def f(x):
    p = Point(x)
    p.a = x * x
    return p.a
of(f, 1.5)
says: write `{} = dataclasses.replace({}, {}=...)`
def f(x):
    p = Point(x)
    p = dataclasses.replace(p, a=x * x)
    return p.a
agrees(f, 1.5)

of(lambda n: np.zeros(n, dtype=int)[0], 3)
says: write `dtype=float`
agrees(lambda n: np.zeros(n, dtype=float)[0], 3)

of(lambda x: [x, x] * 2.0, 1.5)
says: write a loop over it, or `np.array(...)`
agrees(lambda x: (np.array([x, x]) * 2.0)[1], 1.5)

of(lambda a, b: (a + b)[0, 0, 1], np.ones((1, 1, 2)), np.arange(2.0))
says: give both the same number by `a.reshape(...)` as: .reshape(
agrees(lambda a, b: (a + b.reshape(1, 1, 2))[0, 0, 1],
  np.ones((1, 1, 2)), np.arange(2.0))

of(lambda a: a[0] + a[1], FIVE)
says: pass at most {}, by `a.reshape(...)` as: .reshape(
of(lambda a: a[0] + a[1], FIVE.reshape(2))
gives: 3.0

def f(x):
    g = lambda y: x * y
    x = 2.0
    return g(x)
of(f, 1.5)
says: by a default: `x=x`
def f(x):
    g = lambda y, x=x: x * y
    x = 2.0
    return g(x)
agrees(f, 1.5)

of(lambda x: (y := x * x) + y, 1.5)
says: assign the variable in a line of its own
def f(x):
    y = x * x
    return y + y
agrees(f, 1.5)

of(lambda a, b: a[a > b].sum(), THREE, THREE - 1.0)
says: write a loop over its items, or `np.where(condition, a, b)`
def f(a, b):
    condition = a > b
    return np.where(condition, a, b).sum()
agrees(f, THREE, THREE - 1.0)

of(lambda a: ((a > 1.0) * 2.0).sum(), THREE)
says: write `np.where(mask, 1.0, 0.0)`
def f(a):
    mask = a > 1.0
    return (np.where(mask, 1.0, 0.0) * 2.0).sum()
agrees(f, THREE)

of(lambda x: np.zeros_like(x) + x, 1.5)
says: use `np.zeros`
agrees(lambda x: np.zeros(1)[0] + x, 1.5)

def f(a):
    s = 0.0
    for each in a > 1.0:
        s += 1.0
    return s
of(f, THREE)
says: use `where`
agrees(lambda a: np.where(a > 1.0, 1.0, 0.0).sum(), THREE)

def f(a):
    a = a.copy()
    s = 0.0
    for x in a:
        a[0] = 1.0
        s += x
    return s
of(f, THREE)
says: loop over `range(len(a))`
def f(a):
    a = a.copy()
    s = 0.0
    for i in range(len(a)):
        a[0] = 1.0
        s += a[i]
    return s
agrees(f, THREE)

def f(x):
    a = b = x.copy()
    a[0] = 7.0
    return a[0] + b[1]
of(f, THREE)
says: write `b = a.copy()`
def f(x):
    a = x.copy()
    b = a.copy()
    a[0] = 7.0
    return a[0] + b[1]
agrees(f, THREE)

def f(a):
    a[0] = 7.0
    return a[0] + a[1]
of(f, THREE)
says: write `a = a.copy()`
def f(a):
    a = a.copy()
    a[0] = 7.0
    return a[0] + a[1]
agrees(f, THREE)

def f(a):
    a += 1.0
    return a[0] + a[1]
of(f, THREE)
says: write `a = a ...`
def f(a):
    a = a + 1.0
    return a[0] + a[1]
agrees(f, THREE)

def f(x, n):
    match n:
        case 1:
            return x
        case _:
            return x * x
of(f, 1.5, 2)
says: use `if`
agrees(lambda x, n: x if n == 1 else x * x, 1.5, 2)

without_compiler(monkeypatch, tmp_path)
native.function(lambda x: x * x)(1.5)
says: use `engine="interpreter"`
without_compiler(monkeypatch, tmp_path)
native.function(lambda x: x * x, engine="interpreter")(1.5)
gives: 1.5 * 1.5

without_compiler(monkeypatch, tmp_path)
squared()
slow says: Set `${}` as: 'CC'
monkeypatch.setenv('CC', hurried(tmp_path))
squared()
gives: 1.5 * 1.5

monkeypatch.setenv('CC', 'false')
squared()
RuntimeWarning slow says: set `${}` as: 'CC'
monkeypatch.setenv('CC', hurried(tmp_path))
squared()
gives: 1.5 * 1.5

monkeypatch.setenv('CC', hurried(tmp_path))
monkeypatch.setenv('RETAPE_CACHE', '/dev/null/cache')
squared()
RuntimeWarning slow says: set `$RETAPE_CACHE` as: 'RETAPE_CACHE'
monkeypatch.setenv('RETAPE_CACHE', str(tmp_path))
squared()
gives: 1.5 * 1.5
""",
)


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

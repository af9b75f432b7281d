"""What a function refers to changes between calls; equal functions are made once."""

import gc
import linecache
import math
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retape import native
from tests.judges.vlad.judging import loaded

CHANGES: dict[str, tuple[str, list[str]]] = {
    "a constant": (
        "K = 2.0\ndef f(x):\n    return K * x\n",
        ["K = 5.0", "K = float('5.0')", "K = 2.0"],
    ),
    "the type of a constant": (
        "K = 1\ndef f(x):\n    return K, x\n",
        [f"K = {value}" for value in (1.0, True, 0.0, -0.0, 0, False, 1)],
    ),
    "the sign of a zero": (
        "K = 0\ndef f(x):\n    return x * math.atan2(K, -1.0)\n",
        [f"K = {value}" for value in (-0.0, 0.0, -0.0, 0)],
    ),
    "an attribute of a module": (
        "M = types.ModuleType('m')\nM.rate = 2.0\ndef f(x):\n    return M.rate * x\n",
        ["M.rate = 7.0", "M.rate = 2.0"],
    ),
    "a function of a module": (
        "def f(x):\n    return math.sin(x)\n",
        ["math.sin = math.cos", "math.sin = sin"],
    ),
    "a builtin that is hidden": (
        "def f(x):\n    return abs(-x)\n",
        ["abs = math.sin", "del abs"],
    ),
    "a variable that is closed over": (
        "def outer():\n    k = 2.0\n    def inner(x):\n        return k * x\n"
        "    def change(to):\n        nonlocal k\n        k = to\n"
        "    return inner, change\nf, change = outer()\n",
        ["change(7.0)", "change(2.0)"],
    ),
    "its code and its defaults": (
        "def f(x, y=2.0):\n    return x + y\ndef g(x, y=5.0):\n    return x * y\n",
        ["f.__code__ = g.__code__", "f.__defaults__ = (5.0,)"],
    ),
    "a constant of what it calls": (
        "K = 3.0\ndef h(x):\n    return K * x\ndef f(x):\n    return h(h(x))\n",
        ["K = 2.0"],
    ),
    "code and defaults of what it calls": (
        "def h(x, k=2.0):\n    return k * x\ndef g(x, k=2.0):\n    return k * x * x\n"
        "def f(x):\n    return h(x)\n",
        ["h.__defaults__ = (3.0,)", "h.__code__ = g.__code__", "h = g"],
    ),
}


def by_differences(f: Callable[[float], float], x: float) -> float:
    return (f(x + 1e-6) - f(x - 1e-6)) / 2e-6


CELLS = [
    pytest.param(name, kind, engine, marks=[pytest.mark.slow] * slow)
    for number, name in enumerate(CHANGES)
    for kind, engine, slow in (
        ("function", "interpreter", False),
        ("function", "compiled", number % 2 == 0),
        ("grad", "interpreter", False),
        ("grad", "compiled", True),
        ("jvp", "interpreter", False),
    )
    if kind == "function" or name != "the type of a constant"
]


@pytest.mark.parametrize(("name", "kind", "engine"), CELLS)
def test_a_change_is_seen(
    name: str,
    kind: str,
    engine: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also after so many calls that Python calls machine code at once."""
    monkeypatch.setattr(math, "sin", math.sin)  # it is put back, whatever happens
    text, changes = CHANGES[name]
    text = "import math\nimport types\nfrom math import sin\n\n" + text
    module = loaded(tmp_path, "changing", text)
    made = native.grad(module.f, engine=engine)
    if kind != "grad":
        made = native.function(module.f, engine=engine)

    def is_as_pythons(f: Any) -> None:
        for x in [0.7] * (60 if engine == "compiled" else 1) + [1.3]:
            if kind == "function":
                assert repr(made(x)) == repr(f(x))
            elif kind == "grad":
                assert made(x) == pytest.approx(by_differences(f, x), rel=1e-8)
            else:
                expected = pytest.approx((f(x), by_differences(f, x)), rel=1e-8)
                assert native.jvp(f, (x,), (1.0,), engine=engine) == expected

    is_as_pythons(module.f)
    for change in changes:
        exec(change, vars(module))
        is_as_pythons(module.f)


@pytest.mark.parametrize(
    ("engine", "calls"),
    [
        ("interpreter", 1),
        *(pytest.param("compiled", n, marks=pytest.mark.slow) for n in (1, 29, 31, 60)),
    ],
)
def test_a_derivative_follows_its_own_closure(engine: Any, calls: int) -> None:
    """Not that of an equal function for which its program was made."""

    def shifting(by: float) -> tuple[Any, Callable[[float], None]]:
        def change(to: float) -> None:
            nonlocal by
            by = to

        return native.grad(lambda x: by * x * x, engine=engine), change

    (first, change_first), (second, change_second) = shifting(2.0), shifting(2.0)
    for a, b in ((2.0, 2.0), (2.0, 3.0), (5.0, 3.0), (2.0, 5.0)):
        change_second(b)
        change_first(a)
        for _ in range(calls):
            assert (first(1.0), second(1.0)) == (2.0 * a, 2.0 * b)
    del first
    gc.collect()
    for _ in range(calls):
        assert second(1.0) == 10.0
    assert second(2) == 20.0


def test_a_closure_whose_value_another_had_before_is_another() -> None:
    """What is kept was made for that one when it had the value that is asked for."""

    def shifting(by: float) -> Any:
        while True:
            yield lambda x: by * x  # noqa: B023
            by += 1.0

    made = shifting(5.0)
    first = next(made)
    for wanted in (5.0, 6.0):
        for f in (first, next(shifting(wanted)), next(shifting(5.0))):
            found = native.jvp(f, (1.0,), (1.0,), engine="interpreter")
            assert found == (f(1.0), f(1.0))
        next(made)


def test_values_that_are_compiled_to_others_are_told_apart() -> None:
    for by in (1, 1.0, True, 0.0, -0.0, 0, 1.0, -0.0, False):
        f = lambda x, by=by: math.atan2(by, -1.0) * x  # noqa: E731
        found = native.jvp(f, (1.0,), (1.0,), engine="interpreter")
        assert found == (f(1.0), f(1.0)), by


DERIVED: dict[str, Callable[[Any], Any]] = {
    "jvp": lambda f: native.jvp(f, (2.0,), (1.0,), engine="interpreter")[1],
    "vjp": lambda f: native.vjp(f, (2.0,), 1.0, engine="interpreter")[1][0],
    "grad": lambda f: native.grad(f, engine="interpreter")(2.0),
    "value_and_grad": lambda f: native.value_and_grad(f, engine="interpreter")(2.0)[1],
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", DERIVED)
def test_equal_lambdas_are_compiled_once_and_others_are_not_all_kept(kind: str) -> None:
    for differ in (False, True):
        alive: weakref.WeakSet[Any] = weakref.WeakSet()
        for i in range(200):
            f = lambda x, by=float(differ * i): by * x * x + x * x  # noqa: E731
            alive.add(f)
            assert DERIVED[kind](f) == 4.0 * (differ * i + 1.0)
        del f
        gc.collect()
        assert 1 < len(alive) <= 64 if differ else len(alive) == 1


def test_a_file_that_was_saved_again_is_refused(tmp_path: Path) -> None:
    module = loaded(tmp_path, "saved_again", "def f(x):\n    return x * 2.0\n")
    path = tmp_path / "saved_again.py"
    path.write_text("def f(x):\n    return x * 300.0\n")
    os.utime(path, ns=(1, path.stat().st_mtime_ns + 10**9))
    with pytest.raises(native.CompileError, match="have not changed since they were"):
        native.function(module.f, engine="interpreter")(1.0)


def test_a_file_that_is_new_and_unchanged_is_compiled(tmp_path: Path) -> None:
    text = """from __future__ import annotations
def outer(a):
    def inner(x: float, y=(1, 2.5)):
        return a * x + y[1]
    return inner
"""
    made = loaded(tmp_path, "new_file", text).outer(3.0)
    assert native.function(made, engine="interpreter")(2.0) == 8.5


def test_cells_of_a_notebook_are_compiled_as_they_are_now() -> None:
    names: dict[str, Any] = {"K": 2.0}

    def runs(cell: str, text: str) -> None:
        linecache.cache[cell] = len(text), None, text.splitlines(True), cell
        exec(compile(text, cell, "exec"), names)

    runs("<cell 1>", "def h(x):\n    return K * x\n")
    runs("<cell 2>", "def f(x):\n    return h(x) + 1.0\n")
    old = names["h"]
    f = native.grad(names["f"], engine="interpreter")
    assert f(3.0) == 2.0
    runs("<cell 1>", "def h(x):\n    return K * x * x\n")
    assert f(3.0) == 12.0
    with pytest.raises(native.CompileError, match="text of `h` is not found"):
        native.function(old, engine="interpreter")(3.0)


def test_a_function_without_a_file_is_refused() -> None:
    names: dict[str, Any] = {}
    exec("def f(x):\n    return x\n", names)
    with pytest.raises(native.CompileError, match="cannot be read, since it is in no"):
        native.function(names["f"])(1.0)

"""A text that has changed since Python read it, and functions that have."""

import importlib.util
import linecache
import math
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from retape import native


def _imported(path: Path, text: str) -> ModuleType:
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _in_a_notebook(cell: str, text: str, names: dict[str, Any]) -> None:
    linecache.cache[cell] = len(text), None, text.splitlines(True), cell
    exec(compile(text, cell, "exec"), names)


def test_a_file_that_was_saved_again_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "saved_again.py"
    module = _imported(path, "def f(x):\n    return x * 2.0\n")
    path.write_text("def f(x):\n    return x * 300.0\n")
    os.utime(path, ns=(1, path.stat().st_mtime_ns + 10**9))
    with pytest.raises(native.CompileError, match="have not changed since they were"):
        native.function(module.f, engine="interpreter")(1.0)


def test_a_file_that_is_new_and_unchanged_is_compiled(tmp_path: Path) -> None:
    text = (
        "from __future__ import annotations\n"
        "def outer(a):\n"
        "    def inner(x: float, y=(1, 2.5)):\n"
        "        return a * x + y[1]\n"
        "    return inner\n"
        "f = outer(3.0)\n"
    )
    module = _imported(tmp_path / "new_file.py", text)
    assert native.function(module.f, engine="interpreter")(2.0) == 8.5


def test_cells_of_a_notebook_are_compiled_as_they_are_now() -> None:
    names: dict[str, Any] = {}
    _in_a_notebook("<cell 1>", "K = 2.0\ndef h(x):\n    return K * x\n", names)
    _in_a_notebook("<cell 2>", "def f(x):\n    return h(x) + 1.0\n", names)
    old = names["h"]
    f = native.grad(names["f"], engine="interpreter")
    assert f(3.0) == 2.0
    names["K"] = 5.0
    assert f(3.0) == 5.0
    _in_a_notebook("<cell 1>", "def h(x):\n    return K * x * x\n", names)
    assert f(3.0) == 30.0
    with pytest.raises(native.CompileError, match="text of `h` is not found"):
        native.function(old, engine="interpreter")(3.0)


def test_a_function_that_is_given_other_code_is_compiled_anew(tmp_path: Path) -> None:
    """As `%autoreload` does it: the function stays, its code is another one."""
    one = _imported(tmp_path / "one.py", "def h(x, k=2.0):\n    return k * x\n")
    two = _imported(tmp_path / "two.py", "def h(x, k=2.0):\n    return k * x * x\n")
    text = "def f(x):\n    return h(x)\n"
    three = _imported(tmp_path / "three.py", text)
    three.h = one.h  # type: ignore[attr-defined]
    f = native.function(three.f, engine="interpreter")
    assert f(3.0) == 6.0
    one.h.__defaults__ = (3.0,)
    assert f(3.0) == 9.0
    one.h.__code__ = two.h.__code__
    assert f(3.0) == 27.0


K = 0.0


def sign_of_a_constant(x):
    return math.atan2(K, x)


def test_a_constant_that_becomes_minus_zero_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    f = native.function(sign_of_a_constant, engine="interpreter")
    assert f(-1.0) > 3.0
    monkeypatch.setitem(globals(), "K", -0.0)
    assert f(-1.0) < -3.0

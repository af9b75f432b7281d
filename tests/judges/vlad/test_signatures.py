"""`@native.function` as Numba's users write it: lazy, eager, with types and a cache."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from retape import GradientTypeError, native


def scaled(a, x):  # type: ignore[no-untyped-def]
    return (a * x).sum()


def power(x, n):  # type: ignore[no-untyped-def]
    return x**n


def broken(x):  # type: ignore[no-untyped-def]
    with x as y:
        return y


ROWS: dict[str, tuple[Any, Any, tuple[Any, ...], Any]] = {
    "one": ("float64(float64[:], float64)", scaled, (np.ones(3), 2.0), 6.0),
    "short": ("f8(f8[:], f8)", scaled, (np.ones(3), 2.0), 6.0),
    "no value": ("(float64[::1], float64)", scaled, (np.ones(3), 2.0), 6.0),
    "an int for a float": (
        "float64(float64[:], float64)",
        scaled,
        (np.ones(3), 2),
        6.0,
    ),
    "two": (["float64(float64, int64)", "int64(int64, int64)"], power, (3, 2), 9),
    "first of two": (["f8(f8, i8)", "i8(i8, i8)"], power, (3.0, 2), 9.0),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_signature_compiles_at_once_and_says_what_is_taken(name: str) -> None:
    signature, function, args, expected = ROWS[name]
    made = native.function(signature, engine="interpreter")(function)
    found = made(*args)
    assert found == expected
    assert type(found) is type(expected)
    assert pickle.loads(pickle.dumps(native.grad(made)))(*args) is not None


REFUSED: dict[str, tuple[Any, Any, type[Exception], str]] = {
    "not read": ("float32(float32)", power, GradientTypeError, "write a text such as"),
    "no text": ([power], power, GradientTypeError, "write a text such as"),
    "another number": ("f8(f8)", power, GradientTypeError, "write one for each"),
    "another value": ("i8(f8, i8)", power, native.CompileError, "write that one"),
    "not compiled": ("f8(f8)", broken, native.CompileError, "`with` is not compiled"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_signature_cannot_be_is_refused_where_it_is_written(name: str) -> None:
    signature, function, kind, message = REFUSED[name]
    with pytest.raises(kind, match=message) as caught:
        native.function(signature, engine="interpreter")(function)
    if kind is native.CompileError:
        assert "test_signatures.py" in str(caught.value)


def test_arguments_of_another_type_are_refused_with_what_is_declared() -> None:
    made = native.function("f8(f8[:], f8)", engine="interpreter")(scaled)
    with pytest.raises(GradientTypeError, match="add a signature, or leave them"):
        made(np.ones((2, 2)), 1.0)


def test_a_cache_keeps_the_machine_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the runtime, which all programs have in common."""
    native.function(lambda x: x + 0.5)(1.0)
    monkeypatch.setenv("RETAPE_CACHE", str(tmp_path))
    native.function(lambda x: x + 0.25)(1.0)  # compiles the runtime for this cache
    for cache, more in ((False, 0), (True, 1)):
        before = len(os.listdir(tmp_path))

        @native.function(cache=cache)
        def shifted(x):  # type: ignore[no-untyped-def]
            return x + 0.125

        assert shifted(1.0) == 1.125
        assert len(os.listdir(tmp_path)) - before == more

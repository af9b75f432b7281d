"""Numbers at their edges, and arguments that only look like numbers and arrays."""

import importlib
import itertools
import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from retape import GradientTypeError, native

INF, NAN = math.inf, math.nan


def functions_of_one(which, x):
    if which == 0:
        return math.sqrt(x)
    if which == 1:
        return math.log(x)
    if which == 2:
        return math.sin(x)
    if which == 3:
        return math.tan(x)
    if which == 4:
        return math.asin(x)
    if which == 5:
        return math.exp(x)
    if which == 6:
        return math.log1p(x)
    return float(np.minimum(x, 1.0)) + float(np.maximum(1.0, x))


def _outcome(f: Callable[..., Any], *args: Any) -> Any:
    try:
        value = f(*args)
    except (ValueError, OverflowError, native.RunError):
        return "stops"
    return "NaN" if value != value else struct.pack("<d", value)


@pytest.mark.parametrize("engine", ["interpreter", "compiled"])
def test_infinities_stop_a_function_or_go_through_it_as_in_python(engine: Any) -> None:
    compiled = native.function(functions_of_one, engine=engine)
    for which in range(8):
        for x in (INF, -INF, NAN, 0.0, -0.0, -1.0, 1e308, 5e-324):
            expected = _outcome(functions_of_one, which, x)
            assert _outcome(compiled, which, x) == expected, (which, x)


def length(x, y):
    return math.hypot(x, y)


@pytest.mark.parametrize("engine", ["interpreter", "compiled"])
def test_a_hypotenuse_neither_overflows_nor_vanishes(engine: Any) -> None:
    compiled = native.function(length, engine=engine)
    values = [0.0, -0.0, -3.0, 5e-324, 1e-200, 1e200, 1e308, INF, -INF, NAN]
    for x, y in itertools.product(values, values):
        assert compiled(x, y) == pytest.approx(math.hypot(x, y), rel=1e-15, nan_ok=True)
    gradient = native.grad(length, (0, 1), engine=engine)
    for size in (1.0, 1e-200, 1e200):
        assert gradient(3.0 * size, -4.0 * size) == pytest.approx((0.6, -0.8))
    assert gradient(0.0, 0.0) == (0.0, 0.0)


def powers_and_remainders(x, y, power):
    return x**y if power else x % y


def test_derivatives_at_the_edges_are_those_of_all_implementations() -> None:
    found = [
        native.grad(powers_and_remainders, (0, 1), engine=engine)
        for engine in ("interpreter", "compiled")
    ]
    for args in [(-0.0, 0.5, True), (-0.0, 3.0, True), (-2.0, 3.0, True)]:
        a, b = (str(each(*args)) for each in found)
        assert a == b, args
    for args in [(1.0, 5e-324, False), (INF, 2.0, False), (1.0, -INF, False)]:
        a, b = (str(each(*args)) for each in found)
        assert a == b, args


def total(a):
    result = 0.0
    for x in a:
        result += x * x
    return result


class Meters(float):
    def __mul__(self, other: float) -> float:
        raise AssertionError("meters are not multiplied here")


def twice(x):
    return x * 2.0


@pytest.mark.parametrize(
    ("f", "argument", "message"),
    [
        (total, np.ma.array([1.0, 2.0], mask=[False, True]), "type `MaskedArray` may"),
        (total, np.zeros(2).view(np.recarray), "type `recarray` may mean"),
        (twice, np.timedelta64(3, "s"), "type `timedelta64` is not a value"),
        (twice, Meters(2.0), "type `Meters` is not a value"),
    ],
)
def test_what_only_looks_like_a_number_or_an_array_is_refused(
    f: Any, argument: Any, message: str
) -> None:
    with pytest.raises(GradientTypeError, match=message):
        native.function(f, engine="interpreter")(argument)


def test_arrays_of_every_layout_are_what_they_hold() -> None:
    base = np.arange(12.0)
    gradient = native.grad(total, engine="interpreter")
    read_only = base.copy()
    read_only.setflags(write=False)
    odd = np.frombuffer(b"\0" + base.tobytes(), dtype=float, offset=1)
    for a in (base[::3], base[::-1], base[:0], read_only, odd, np.broadcast_to(2.0, 3)):
        assert gradient(a).tolist() == (2.0 * a).tolist()


def test_calls_with_numbers_again_are_as_the_first() -> None:
    """The second call of the same types goes to the program at once."""

    def f(x, n):
        return x / n, n

    compiled = native.function(f)
    for _ in range(3):
        assert compiled(3.0, 2) == (1.5, 2) and isinstance(compiled(3.0, 2)[1], int)
        assert compiled(3, 2) == (1.5, 2)
        assert math.isnan(compiled(math.nan, 2)[0])
        with pytest.raises(native.RunError, match="division by zero"):
            compiled(1.0, 0)
        with pytest.raises(GradientTypeError, match="above 2"):
            compiled(1.0, 2**53 + 1)
    single = native.function(lambda x: np.ones(1) * x)
    assert [single(2.0)[0], single(3.0)[0]] == [2.0, 3.0]


def test_a_fault_in_a_quick_call_leaves_the_next_one_as_it_is() -> None:
    @native.function
    def inverse(x: Any) -> Any:
        return 1.0 / x

    assert [inverse(2.0), inverse(4.0)] == [0.5, 0.25]
    for _ in range(2):
        with pytest.raises(native.RunError, match="division"):
            inverse(0.0)
        assert inverse(8.0) == 0.125


@pytest.mark.parametrize("engine", ["interpreter", "compiled"])
def test_an_int_that_may_have_been_rounded_is_refused(engine: Any) -> None:
    """2**53 + 1 is 2**53 once it is rounded: the sum was that, in silence."""
    added = native.function(lambda a, b: a + b, engine=engine)
    assert added(2**53 - 2, 1) == 2**53 - 1
    for a, b in ((2**53, 1), (2**53 - 1, 1), (-(2**53), -1), (2**52, 2**52)):
        with pytest.raises(native.RunError, match="not below 2"):
            added(a, b)


def test_an_index_that_is_a_bool_is_a_mask_to_numpy() -> None:
    picked = native.function(lambda a, i: a[i], engine="interpreter")
    with pytest.raises(native.CompileError, match="mask"):
        picked(np.ones(3), True)


def starred(*parts):
    return parts[0]


def named(x, *, y=2.0):
    return x * y


def generated(x):
    yield x


async def awaited(x):
    return x


def test_functions_of_other_kinds_are_refused_by_name() -> None:
    for f in (starred, named):
        with pytest.raises(native.CompileError, match="among parameters"):
            native.function(f, engine="interpreter")(1.0)
    for f in (generated, awaited):
        with pytest.raises(native.CompileError, match="generator or a coroutine"):
            native.function(f, engine="interpreter")(1.0)


@pytest.mark.slow
def test_a_function_that_is_too_long_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each statement stands in the one before it; the passes recurse through them."""
    lines = ["def long(x):", *["    x = x + 0.5 * x"] * 4000, "    return x", ""]
    (tmp_path / "too_long.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    long = importlib.import_module("too_long").long
    with pytest.raises(native.CompileError, match="split it into several functions"):
        native.function(long)(0.5)
    with pytest.raises(native.CompileError, match="split it into several functions"):
        native.grad(long)(0.5)

"""Calls again and again: as the first one, whatever has changed in between."""

import _thread
import inspect
import math
import random
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import retape
from retape import native

FACTOR = 3.0


def warm(call: Any, *args: Any) -> Any:
    """Call a function until nothing about its calls is made anew."""
    for _ in range(60):
        call(*args)
    return call


def newton(a: float, tolerance: float) -> float:
    x = 1.0
    while abs(x * x - a) > tolerance:
        x = 0.5 * (x + a / x)
    return x


def scaled(x: float) -> float:
    return FACTOR * x


def count(n: int) -> int:
    total = 0
    for i in range(n):
        total += i
    return total


def mixed(x: float, n: int, up: bool) -> float:
    return x**n if up else math.sqrt(x) / n


def parts(x: float, n: int) -> tuple[Any, ...]:
    return x > n, (math.log(x), n * n), -x


def filled(x: float, n: int) -> float:
    row = numpy.zeros(n)
    for i in range(n):
        row[i] = x * i
    return row.sum()


def series(x: float, n: int) -> float:
    for _ in range(n):
        x = 0.5 * math.sin(x)
    return x


def table(a: Any, m: Any, x: float, up: bool) -> Any:
    total = 0.0
    for i in range(len(a)):
        total += a[i] * x
    return total + m[0, 0], a * x, m * 3.0, up


def weighed(a: Any, m: Any, x: float) -> float:
    return a @ a * x + (m * m).sum()


def bits(value: Any) -> Any:
    """A value, of whose arrays the bytes tell."""
    if isinstance(value, tuple):
        return tuple(bits(item) for item in value)
    return (value.shape, value.tobytes()) if hasattr(value, "tobytes") else value


def outcome(call: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """A value down to the last bit, or an error with its place."""
    try:
        value = call(*args)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is to be the same
        return type(error), str(error).splitlines()[:3]
    return type(value), repr(bits(value))


_FLOATS = [0.0, -0.0, 1.0, -1.5, 1e308, 5e-324, math.inf, -math.inf, math.nan, 2.0]
_INTS = [0, 1, -1, 7, 2**53, -(2**53), 2**53 + 1, 10**30, 2**64, 400]
_OTHERS = [True, False, None, "x", (1.0,), numpy.float64(2.5), numpy.ones(2), 1j]


def _array(chance: random.Random, rank: int) -> Any:
    """Of some shape and layout, of more doubles than a call keeps or of few."""
    shape = [chance.choice([1, 2, 3, 40, 0, 90][: 6 if rank == 1 else 5])] * rank
    if rank == 1 and chance.random() < 0.1:
        shape = [5000]
    made = numpy.random.default_rng(chance.randrange(100)).normal(size=shape)
    return made[::-1] if chance.random() < 0.3 else made.T


def _arguments(chance: random.Random, like: tuple[Any, ...]) -> tuple[Any, ...]:
    made: list[Any] = []
    for each in like:
        if chance.random() < 0.1:
            made.append(chance.choice([*_OTHERS, *_FLOATS, *_INTS]))
        elif isinstance(each, numpy.ndarray):
            made.append(_array(chance, each.ndim))
        elif type(each) is float:
            some = [*_FLOATS, chance.gauss(0.0, 10.0), chance.random()]
            made.append(chance.choice(some))
        elif type(each) is bool:
            made.append(chance.random() < 0.5)
        else:
            made.append(chance.choice([*_INTS, chance.randrange(50)]))
    return tuple(made)


CALLS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "float": (scaled, (2.0,)),
    "int": (count, (5,)),
    "mixed": (mixed, (2.0, 3, True)),
    "tuple": (parts, (2.0, 3)),
    "array": (filled, (2.0, 3)),
    "loop": (series, (2.0, 3)),
    "arrays": (table, (numpy.ones(3), numpy.ones((2, 2)), 2.0, True)),
    "sums": (weighed, (numpy.ones(3), numpy.ones((2, 2)), 2.0)),
}


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_random_calls_are_those_of_the_interpreter(name: str, gradient: bool) -> None:
    function, args = CALLS[name]
    if gradient and name in ("int", "tuple", "arrays"):
        return  # of an int, and of a tuple, there is none
    make = native.value_and_grad if gradient else native.function
    made, other = make(function), make(function, engine="interpreter")
    warm(made, *args)
    chance = random.Random(name)
    for _ in range(60):
        given = _arguments(chance, args)
        if name in ("int", "array", "loop") and type(given[-1]) is int:
            given = (*given[:-1], min(given[-1], 50))
        assert outcome(made, given) == outcome(other, given), given


def test_what_it_takes_by_name_or_does_not_take() -> None:
    made = warm(native.function(mixed), 2.0, 3, True)
    assert made(2.0, up=False, n=4) == mixed(2.0, 4, False)
    assert made(*(2.0, 3), **{"up": True}) == 8.0
    for args in ((), (1.0,), (1.0, 2, True, 4)):
        assert outcome(made, args)[0] is TypeError
    with pytest.raises(TypeError, match="cannot be given 'other'"):
        made(1.0, 2, True, other=3)


def test_a_subclass_of_float_is_refused_as_ever() -> None:
    class Own(float):
        def __mul__(self, other: float) -> float:
            return 0.0

    made = warm(native.function(scaled), 2.0)
    with pytest.raises(retape.GradientTypeError, match="pass numbers, bools"):
        made(Own(2.0))
    assert made(2.0) == 6.0


def test_an_int_that_would_be_rounded_is_refused() -> None:
    made = warm(native.function(count), 5)
    with pytest.raises(retape.GradientTypeError, match=r"above 2\*\*53"):
        made(2**53 + 1)
    with pytest.raises(retape.GradientTypeError, match=r"above 2\*\*53"):
        made(2**70)


def test_a_fault_has_the_line_of_python() -> None:
    made = warm(native.function(mixed), 2.0, 3, False)
    with pytest.raises(native.RunError, match="division by zero") as caught:
        made(2.0, 0, False)
    assert "math.sqrt(x) / n" in str(caught.value)
    assert made(4.0, 2, False) == 1.0


def test_a_changed_constant_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    made = warm(native.function(scaled), 2.0)
    monkeypatch.setitem(globals(), "FACTOR", 5.0)
    assert made(2.0) == 10.0
    assert warm(made, 2.0)(3.0) == 15.0
    monkeypatch.setitem(globals(), "FACTOR", float("5.0"))  # equal, and another object
    assert made(2.0) == 10.0


def test_a_builtin_that_is_hidden_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    made = warm(native.function(newton), 2.0, 1e-12)
    value = made(2.0, 1e-12)
    monkeypatch.setitem(globals(), "abs", math.sqrt)
    assert outcome(made, (0.5, 1e-12))[0] is native.RunError  # of a negative number
    monkeypatch.delitem(globals(), "abs")
    assert made(2.0, 1e-12) == value


def test_a_changed_attribute_of_a_module_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = warm(native.function(series), 0.5, 3)
    monkeypatch.setattr(math, "sin", math.cos)
    assert made(0.5, 1) == 0.5 * math.cos(0.5)


def test_a_variable_that_is_closed_over_counts() -> None:
    def outer() -> tuple[Any, Callable[[float], None]]:
        factor = 2.0

        def inner(x: float) -> float:
            return factor * x

        def change(to: float) -> None:
            nonlocal factor
            factor = to

        return native.function(inner), change

    made, change = outer()
    assert warm(made, 1.0)(3.0) == 6.0
    change(7.0)
    assert made(3.0) == 21.0


def test_code_and_defaults_that_are_put_into_a_function_count() -> None:
    def first(x: float, y: float = 2.0) -> float:
        return x + y

    def second(x: float, y: float = 5.0) -> float:
        return x * y

    made = warm(native.function(first), 1.0, 2.0)
    first.__code__ = second.__code__
    assert made(3.0, 4.0) == 12.0
    warm(made, 1.0, 2.0)
    first.__defaults__ = (5.0,)
    assert made(3.0, 4.0) == 12.0
    assert made(3.0) == 15.0


def test_a_function_that_is_called_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(x: float) -> float:
        return scaled(scaled(x))

    made = warm(native.function(twice), 1.0)
    monkeypatch.setitem(globals(), "FACTOR", 2.0)
    assert made(3.0) == 12.0


def test_a_long_run_lets_an_interrupt_in() -> None:
    made = warm(native.function(series), 0.3, 10)
    value = made(0.3, 10)
    timer = threading.Timer(0.2, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        made(0.3, 2_000_000_000)
    timer.join()
    assert made(0.3, 10) == value


def test_long_and_short_runs_take_turns() -> None:
    made = warm(native.value_and_grad(series), 0.9, 10)
    other = native.value_and_grad(series)
    for n in (10, 100_000, 10, 1_000, 100_000, *range(40)):
        assert made(0.9, n) == other(0.9, n)


def test_a_handler_may_not_call_what_it_came_in_the_middle_of() -> None:
    made = warm(native.function(series), 0.3, 10)
    seen: list[str] = []

    def call(number: int, frame: object) -> None:
        with pytest.raises(retape.UnsupportedError, match="in the middle") as caught:
            made(0.3, 10)
        seen.append(str(caught.value))
        raise TimeoutError

    before = signal.signal(signal.SIGINT, call)
    timer = threading.Timer(0.2, _thread.interrupt_main)
    try:
        timer.start()
        with pytest.raises(TimeoutError):
            made(0.3, 2_000_000_000)
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(seen) == 1
    assert made(0.3, 1) == 0.5 * math.sin(0.3)


def test_threads_that_call_at_once() -> None:
    made = warm(native.function(series), 0.3, 10)
    lengths = [3, 10, 50, 300_000]
    expected = {n: made(0.3, n) for n in lengths}
    wrong: list[int] = []

    def calls(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(200):
            n = chance.choices(lengths, [10, 10, 10, 1])[0]
            if made(0.3, n) != expected[n]:
                wrong.append(n)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=calls, args=(i,)) for i in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


def test_a_derivative_has_a_signature() -> None:
    derivative = native.grad(newton)
    assert list(inspect.signature(derivative).parameters) == ["args", "store"]
    function = native.function(newton)
    assert list(inspect.signature(function).parameters) == ["a", "tolerance"]

"""Calls again and again: as the first one, whatever has changed in between."""

import inspect
import math
import random
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy
import pytest

from retape import native
from tests.engines.vlad.support.threads import at_once
from tests.judges.pairwise import dealt
from tests.judges.vlad import corpus


def warm(call: Any, *args: Any) -> Any:
    """Call a function until nothing about its calls is made anew."""
    for _ in range(60):
        call(*args)
    return call


def mixed(x: float, n: int, up: bool) -> float:
    return x**n if up else math.sqrt(x) / n


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
    "float": (corpus.functions_of_numbers, (4.0,)),
    "int": (corpus.backwards, (9,)),
    "mixed": (mixed, (2.0, 3, True)),
    "tuple": (corpus.early, (1.5, 12)),
    "array": (corpus.arrays_that_are_swapped, (1.5, 4)),
    "loop": (corpus.long_loop, (0.7, 40)),
    "arrays": (corpus.shapes, (numpy.ones((2, 2)),)),
    "sums": (weighed, (numpy.ones(3), numpy.ones((2, 2)), 2.0)),
}


WITHOUT_GRADIENT = "int", "tuple", "arrays"
"""Of an int, and of a tuple, there is none."""


@pytest.mark.slow("arrays-False", "sums-False")
@pytest.mark.parametrize(
    ("name", "gradient"),
    [
        *((name, False) for name in WITHOUT_GRADIENT),
        *dealt([name for name in CALLS if name not in WITHOUT_GRADIENT], [False, True]),
    ],
)
def test_random_calls_are_those_of_the_interpreter(name: str, gradient: bool) -> None:
    function, args = CALLS[name]
    make = native.value_and_grad if gradient else native.function
    made, other = make(function), make(function, engine="interpreter")
    warm(made, *args)
    chance = random.Random(name)
    for _ in range(60):
        given = _arguments(chance, args)
        if name != "mixed" and type(given[-1]) is int:
            given = (*given[:-1], min(given[-1], 50))
        assert outcome(made, given) == outcome(other, given), given


@pytest.mark.parametrize("calls", [0, 60])
def test_what_it_takes_by_name_or_does_not_take(calls: int) -> None:
    made = native.function(mixed, engine="compiled" if calls else "interpreter")
    for _ in range(calls):
        made(2.0, 3, True)
    assert made(2.0, up=False, n=4) == mixed(2.0, 4, False)
    assert made(*(2.0, 3), **{"up": True}) == 8.0
    assert made(numpy.float64(2.0), numpy.int32(4), False) == mixed(2.0, 4, False)
    with pytest.raises(TypeError, match=r"mixed\(\): missing a required argument: 'x'"):
        made()
    with pytest.raises(
        TypeError, match=r"mixed\(\): missing a required argument: 'up'"
    ):
        made(1.0, 2)
    with pytest.raises(TypeError, match=r"mixed\(\): too many positional arguments"):
        made(1.0, 2, True, 4)
    with pytest.raises(
        TypeError, match=r"mixed\(\): got an unexpected keyword argument 'other'"
    ):
        made(1.0, 2, True, other=3)


def test_long_and_short_runs_take_turns() -> None:
    made = warm(native.value_and_grad(corpus.long_loop), 0.9, 10)
    other = native.value_and_grad(corpus.long_loop)
    for n in (10, 100_000, 10, 1_000, 100_000, *range(40)):
        assert made(0.9, n) == other(0.9, n)


def test_threads_that_call_at_once() -> None:
    made = warm(native.function(corpus.long_loop), 0.3, 10)
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
        at_once(*(partial(calls, seed) for seed in range(4)))
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


def test_a_derivative_has_a_signature() -> None:
    derivative = native.grad(mixed)
    assert list(inspect.signature(derivative).parameters) == ["args", "store"]
    function = native.function(mixed)
    assert list(inspect.signature(function).parameters) == ["x", "n", "up"]

"""Derivatives of equal functions are made once, and a bounded number is kept."""

import gc
import math
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from retape import native


def _scaled(by: float) -> Callable[[Any], Any]:
    return lambda x: by * x * x


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["jvp", "vjp"])
def test_a_thousand_equal_lambdas_are_compiled_once_and_not_kept(kind: str) -> None:
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    for _ in range(1_000):
        f = lambda x: 3.25 * x * x  # noqa: E731
        alive.add(f)
        call = getattr(native, kind)
        argument: Any = (1.0,) if kind == "jvp" else 1.0
        found = call(f, (2.0,), argument, engine="interpreter")
        assert found == ((13.0, 13.0) if kind == "jvp" else (13.0, (13.0,)))
    del f
    gc.collect()
    assert len(alive) == 1


def test_a_closure_that_was_given_another_value_is_another() -> None:
    """Also if what is kept was made for it when it had the value that is asked for."""

    def shifting(by: float) -> Iterator[Any]:
        while True:
            yield lambda x: by * x  # noqa: B023
            by += 1.0

    def value(f: Any) -> float:
        return native.jvp(f, (1.0,), (1.0,), engine="interpreter")[1]

    made = shifting(5.0)
    first = next(made)
    assert value(first) == 5.0
    next(made)
    assert value(first) == 6.0
    assert value(next(shifting(5.0))) == 5.0
    assert value(next(shifting(6.0))) == 6.0


@pytest.mark.slow
def test_no_more_than_a_number_of_functions_are_kept() -> None:
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    for i in range(200):
        f = _scaled(float(i))
        alive.add(f)
        assert native.jvp(f, (1.0,), (1.0,), engine="interpreter") == (i, 2 * i)
    del f
    gc.collect()
    assert 1 < len(alive) <= 64


def test_values_that_are_compiled_to_others_are_told_apart() -> None:
    for by in (1, 1.0, True, 0.0, -0.0, 0, 1.0, -0.0, False):
        f = lambda x, by=by: (by, x)  # noqa: E731
        (found, _), _ = native.jvp(
            lambda x, f=f: (f(x)[0] * 1.0, x), (1.0,), (1.0,), engine="interpreter"
        )
        assert math.copysign(1.0, found) == math.copysign(1.0, by)
        assert found == by


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["grad", "value_and_grad"])
def test_a_derivative_made_in_a_loop_is_compiled_once(kind: str) -> None:
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    for _ in range(200):
        f = lambda x: 4.75 * x * x  # noqa: E731
        alive.add(f)
        found = getattr(native, kind)(f, engine="interpreter")(2.0)
        assert found == (19.0 if kind == "grad" else (19.0, 19.0))
    del f
    gc.collect()
    assert len(alive) == 1


def test_a_derivative_follows_its_own_closure_not_that_of_the_first() -> None:
    """Neither is another's program taken for one whose closure has changed since."""

    def shifting(by: float) -> tuple[Any, Callable[[float], None]]:
        def change(to: float) -> None:
            nonlocal by
            by = to

        return native.grad(lambda x: by * x, engine="interpreter"), change

    (first, change_first), (second, change_second) = shifting(2.0), shifting(2.0)
    assert first(1.0) == second(1.0) == 2.0
    change_second(3.0)
    assert (first(1.0), second(1.0)) == (2.0, 3.0)
    change_first(5.0)
    assert (first(1.0), second(1.0)) == (5.0, 3.0)
    change_second(5.0)
    change_first(2.0)
    assert (first(1.0), second(1.0)) == (2.0, 5.0)


@pytest.mark.slow
@pytest.mark.parametrize("calls", [1, 29, 31, 60])
def test_old_derivatives_follow_their_closures_too(calls: int) -> None:
    def shifting(by: float) -> tuple[Any, Callable[[float], None]]:
        def change(to: float) -> None:
            nonlocal by
            by = to

        return native.grad(lambda x: by * x * x), change

    (first, change_first), (second, change_second) = shifting(2.0), shifting(2.0)
    for _ in range(calls):
        assert first(1.0) == second(1.0) == 4.0
    change_second(3.0)
    assert (first(1.0), second(1.0)) == (4.0, 6.0)
    change_first(5.0)
    del first
    gc.collect()
    for _ in range(calls):
        assert second(1.0) == 6.0
    assert second(2) == 12.0

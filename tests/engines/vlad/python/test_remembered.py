"""Derivatives of equal functions are made once, and a bounded number is kept."""

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from retape import native
from retape.engines.vlad.python.call import _callable
from retape.engines.vlad.python.call._remembered import (
    REMEMBERED,
    Remembered,
    identity,
)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The programs that were compiled."""
    programs: list[Any] = []
    make = _callable.make_engine

    def noted(name: Any, program: Any, setting: Any) -> Any:
        programs.append(program.roots)
        return make(name, program, setting)

    monkeypatch.setattr(_callable, "make_engine", noted)
    return programs


def _scaled(by: float) -> Callable[[Any], Any]:
    return lambda x: by * x * x


@pytest.mark.parametrize("kind", ["jvp", "vjp"])
def test_a_thousand_equal_lambdas_are_compiled_once_and_not_kept(
    kind: str, compiled: list[Any]
) -> None:
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
    assert len(compiled) == 1
    assert len(alive) == 1


def test_functions_that_close_over_other_values_are_others(compiled: list[Any]) -> None:
    for by in (2.0, 3.0, 2.0, 3.0):
        done = native.jvp(_scaled(by), (1.0,), (1.0,), engine="interpreter")
        assert done == (by, 2 * by)
    assert len(compiled) == 2


def test_a_closure_that_was_given_another_value_is_another(compiled: list[Any]) -> None:
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


def test_no_more_than_a_number_of_functions_are_kept() -> None:
    kept: Remembered[int] = Remembered()
    for i in range(3 * REMEMBERED):
        assert kept.of(_scaled(i), (), lambda i=i: i) == i
    assert len(kept) == REMEMBERED
    assert kept.of(_scaled(3 * REMEMBERED - 1), (), lambda: -1) == 3 * REMEMBERED - 1
    assert kept.of(_scaled(0), (), lambda: -1) == -1


def test_values_that_are_compiled_to_others_are_told_apart() -> None:
    nan = float("nan")
    values = [1, 1.0, True, 0.0, -0.0, nan, None, (1,), (1.0,), "1"]
    assert len({identity(_scaled(v)) for v in values}) == len(values)  # type: ignore[arg-type]
    assert identity(_scaled(nan)) == identity(_scaled(float("nan")))


def test_functions_that_call_themselves_are_known_again() -> None:
    def made() -> Any:
        def power(x: Any, n: Any) -> Any:
            return x * power(x, n - 1) if n > 0 else 1.0

        return power

    first, second = made(), made()
    assert identity(first) == identity(second)
    compiled = native.function(first), native.function(second)
    assert identity(compiled[0]) == identity(compiled[1]) != identity(first)
    slopes = native.grad(first), native.grad(second), native.grad(second, 1)
    assert identity(slopes[0]) == identity(slopes[1]) != identity(slopes[2])


@pytest.mark.parametrize("kind", ["grad", "value_and_grad"])
def test_a_derivative_made_in_a_loop_is_compiled_once(
    kind: str, compiled: list[Any]
) -> None:
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    for _ in range(200):
        f = lambda x: 4.75 * x * x  # noqa: E731
        alive.add(f)
        found = getattr(native, kind)(f, engine="interpreter")(2.0)
        assert found == (19.0 if kind == "grad" else (19.0, 19.0))
    del f
    gc.collect()
    assert len(compiled) == 1
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

"""Budgets of compiled code: what a run takes from the system, whatever it computes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from retape import BudgetError, native, segments, vlad, within
from tests.engines.vlad.support.seams import bytes_of

OWN = 2 * 2**20
"""What a program holds at any rate, and the pieces in which it takes memory."""


def scalars(x: float, n: int) -> float:
    for i in range(n):
        x = x * 0.999 + np.sin(x + i) * 1e-3
    return x


def carried(x: float, n: int) -> float:
    u = np.full(300, x)
    for i in range(n):
        u[i % 300] = u[(7 * i) % 300] * 0.999 + np.sin(u[i % 300]) * 1e-3
    return np.sum(u)


def whole(x: float, n: int) -> float:
    u = np.full(3_000, x)
    for _ in range(n):
        u = u * 0.999 + np.sin(u) * 1e-3
    return np.sum(u)


def short(x: float, n: int) -> float:
    u = np.full(3, x)
    for _ in range(n):
        u = u * 0.999 + np.sin(u) * 1e-3
    return np.sum(u)


def grows(x: float, n: int) -> float:
    items = []
    for i in range(n):
        x = x * 0.999 + 1e-3 * i
        items.append(x * x)
    total = 0.0
    for item in items:
        total += item
    return total


def stacked(x: float, n: int) -> float:
    rows = np.zeros((n, 50))
    u = np.full(50, x)
    for i in range(n):
        u = np.sin(u)
        rows[i] = u
    return np.sum(rows * rows)


def nested(x: float, n: int) -> float:
    for i in range(n):
        u = np.full(500, x + i)
        for _ in range(20):
            u = u * 0.9 + 0.01
        x = x * 0.5 + np.sum(u) / 1e4
    return x


def deep(x: float, n: int) -> float:
    return x if n == 0 else np.sin(deep(x * 0.9999, n - 1)) + x


SLOPE = native.grad(scalars)


def of_slopes(x: float, n: int) -> float:
    for _ in range(n):
        x = x - 0.01 * SLOPE(x, 40)
    return x


PROGRAMS: dict[str, tuple[Callable[[float, int], float], int]] = {
    "scalars": (scalars, 100),
    "an array that is carried": (carried, 100),
    "whole arrays made in each step": (whole, 15),
    "short arrays made in each step": (short, 100),
    "a list that grows": (grows, 100),
    "rows of a matrix": (stacked, 8),
    "nested loops": (nested, 5),
    "a deep recursion": (deep, 300),
}


@pytest.mark.slow("rows of a matrix", "nested loops", "short arrays made in each step")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_run_takes_no_more_than_its_budget(name: str) -> None:
    function, n = PROGRAMS[name]
    wanted = native.grad(function, plan=segments(stage=10**9))(0.5, n)
    with pytest.raises(BudgetError, match="cannot be kept") as refused:
        native.grad(function, plan=within(1))(0.5, n)
    least: Any = refused.value.least
    with pytest.raises(BudgetError):
        native.grad(function, plan=within(least - 1))(0.5, n)
    for budget in (least, 2 * least, 2**30):
        gradient = native.grad(function, plan=within(budget))
        assert gradient(0.5, n) == pytest.approx(wanted, rel=1e-11)
        assert bytes_of(gradient) <= OWN + budget


LONG = {
    "scalars": (scalars, 100_000, 10_000),
    "whole arrays made in each step": (whole, 500, 3_000_000),
    "nested loops": (nested, 1_000, 200_000),
    "a derivative within": (of_slopes, 1_000, 2_000_000),
}
"""A function, its steps, and a budget that is below what all of its tape takes."""


@pytest.mark.slow("a derivative within")
@pytest.mark.parametrize("name", LONG)
def test_a_long_run_is_divided_to_keep_its_budget(name: str) -> None:
    function, n, budget = LONG[name]
    gradient = native.grad(function, plan=within(budget))
    done = native.measure(gradient, 0.5, n)
    assert done.reports[-1].reverses > 1
    assert bytes_of(gradient) <= OWN + budget
    wanted = native.grad(function, plan=segments(stage=10**9))(0.5, n)
    assert done.value == pytest.approx(wanted, rel=1e-10)


def test_what_a_run_takes_first_leaves_room_for_those_within_it() -> None:
    """Its tape's first piece, which is larger than the budget, stays."""
    inner = "(checkpoint-*j (lambda (y) (* y (* y (* x y)))) x 1)"
    text = f"(define (cdr (cons a b)) b) (checkpoint-*j (lambda (x) (cdr {inner})) 3 1)"
    done = vlad.run(text, engine="compiled", plan=within(60_000))
    assert done.output == "(81 . 81)\n"

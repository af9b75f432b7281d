"""How long stages are, and long runs by the default plan."""

import math
from typing import Any

import numpy as np
import pytest

from retape import fixed_space, logarithmic, native, segments
from tests.engines.vlad.support.seams import bytes_of


def passage(angle: float, tolerance: float) -> float:
    speed, t = 0.0, 0.0
    while angle > tolerance:
        speed -= 1e-6 * 9.81 * math.sin(angle)
        angle += 2e-6 * speed
        t += 2e-6
    return t - angle / speed


def turned(a: np.ndarray, steps: int) -> float:
    a = a.copy()
    for k in range(steps):
        i = k % len(a)
        a[i] = math.sin(a[i] + a[i - 1])
    return a.sum()


def deep(x: float, steps: int) -> float:
    return x if steps == 0 else math.sin(deep(x * 0.99, steps - 1)) + x


def test_a_fault_late_in_a_long_run_leaves_the_next_one_as_it_is() -> None:
    def falls(x: float, steps: int) -> float:
        for _ in range(steps):
            x = x - 0.00001
        return math.sqrt(x)

    gradient = native.grad(falls)
    for _ in range(3):
        with pytest.raises(native.RunError, match="math"):
            gradient(1.0, 300_000)
    assert gradient(99.0, 300_000) == pytest.approx(0.5 / math.sqrt(96.0), rel=1e-9)


def settling(x: float, n: int) -> float:
    for _ in range(n):
        x = x + 0.001 * math.sin(x)
    return x


def squares(a: np.ndarray, n: int) -> float:
    s = 0.0
    for i in range(n):
        s += a[i] * a[i]
    return s


def much(x: float, n: int) -> float:
    a = x * np.ones(4)
    for i in range(n):
        a[i % 4] = a[i % 4] * a[(i + 1) % 4] * a[(i + 2) % 4]
    return a.sum()


ONE = range(1, 2)
SEVERAL = range(2, 10_000)
STAGES: dict[str, tuple[Any, Any, float, Any, range, range]] = {
    # Of a loop that puts little on the tape, longer than of one over arrays.
    "short, and open": (settling, 0.5, 2_000, None, ONE, range(10**6)),
    "long": (settling, 0.5, 300_000, None, SEVERAL, range(2 * 10**6, 4 * 10**6)),
    "long, fixed space": (
        settling, 0.5, 300_000, fixed_space(snapshots=20), SEVERAL,
        range(2 * 10**6, 4 * 10**6),
    ),
    "short, logarithmic": (settling, 0.5, 2_000, logarithmic(), ONE, range(10**6)),
    "by length": (settling, 0.5, 2_000, segments(), range(51, 10**4), range(10**4)),
    "a stage that is given": (
        settling, 0.5, 100_000, logarithmic(stage=10**6), SEVERAL, range(10**6 + 1),
    ),
    "a few stages with a small tape": (settling, 0.3, 100_000, None, ONE, range(10**8)),
    "much tape": (much, 0.99, 40_000, None, SEVERAL, range(10**6, 10**6 + 1)),
    "a passage": (passage, 1.0, 1e-3, None, SEVERAL, range(10**8)),
    "arrays": (
        turned, np.linspace(0.1, 0.9, 7), 150_000, None, SEVERAL, range(10**8),
    ),
    "large arrays": (
        turned, np.linspace(0.1, 0.9, 2_000), 150_000, None, SEVERAL, range(10**8),
    ),
    "a deep recursion": (deep, 0.5, 15_000, None, ONE, range(10**8)),
    "as long as large arguments": (
        squares, np.linspace(0.0, 1.0, 20_000), 20_000, logarithmic(stage=1_000),
        range(1, 10), range(10**3, 10**8),
    ),
    "as long as the states of a recursion": (
        deep, 0.5, 20_000, fixed_space(snapshots=3, stage=50), range(1, 20),
        range(50, 10**8),
    ),
}  # fmt: skip
"""A function, its arguments, the plan, how many stages, and how long the longest."""


@pytest.mark.parametrize("name", STAGES)
def test_stages_are_as_long_as_promised(name: str) -> None:
    function, x, n, plan, reverses, longest = STAGES[name]
    gradient = native.grad(function, plan=plan)
    done = native.measure(gradient, x, n)
    (report,) = done.reports
    assert report.reverses in reverses
    assert report.longest_stage in longest
    if report.reverses == 1:
        assert report.longest_stage == report.length
    in_one = native.grad(function, plan=logarithmic(stage=10**9))(x, n)
    np.testing.assert_allclose(done.value, in_one, rtol=1e-11)
    assert np.array_equal(gradient(x, n), done.value)  # what a run leaves changes none


def test_memory_does_not_grow_with_the_run() -> None:
    plan = fixed_space(snapshots=8, stage=2000)
    gradient = native.grad(settling, plan=plan)
    small, large = (
        native.measure(gradient, 0.5, n).reports[0] for n in (2_000, 200_000)
    )
    assert large.length > 90 * small.length
    assert large.peak_snapshots <= 8 and large.longest_stage <= 2000


def rarely(x: float, n: int) -> float:
    for _ in range(n):
        u = np.full(2, x)
        for _ in range(40):
            x = x * 0.999 + 0.001
        x = x + 1e-9 * u[0]
    return x


def test_arrays_that_are_made_seldom_do_not_add_up() -> None:
    gradient = native.grad(rarely)
    taken: list[int] = []
    for n in (5_000, 50_000):
        gradient(0.5, n)
        taken.append(bytes_of(gradient))
    assert taken[1] < taken[0] + 100_000

"""Long runs by the default plan: the same gradients as by short stages."""

import math
from typing import Any

import numpy as np
import pytest

from retape import logarithmic, native


def orbit(x: float, r: float, steps: int) -> float:
    for _ in range(steps):
        x = r * x * (1.0 - x)
    return x


def passage(angle: float, length: float, tolerance: float) -> float:
    speed, t = 0.0, 0.0
    while angle > tolerance:
        speed -= 2e-6 * 9.81 / length * math.sin(angle)
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


CASES: list[tuple[Any, tuple[Any, ...], Any]] = [
    (orbit, (0.3, 3.2, 300_000), (0, 1)),
    (passage, (1.0, 2.0, 1e-3), (0, 1)),
    (turned, (np.linspace(0.1, 0.9, 7), 150_000), (0,)),
    (turned, (np.linspace(0.1, 0.9, 2_000), 150_000), (0,)),
    (deep, (0.5, 15_000), (0,)),
]


@pytest.mark.slow("turned-args2-by2")
@pytest.mark.parametrize(("function", "args", "by"), CASES)
def test_a_long_run_has_the_gradient_of_short_stages(
    function: Any, args: tuple[Any, ...], by: Any
) -> None:
    """Called twice: what the first run left does not change the second one."""
    expected = native.grad(function, by, plan=logarithmic(stage=100_000))(*args)
    gradient = native.grad(function, by)
    first, second = gradient(*args), gradient(*args)
    for one, again, other in zip(first, second, expected, strict=True):
        assert np.array_equal(one, again)
        np.testing.assert_allclose(one, other, rtol=1e-11)


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


def test_a_run_of_a_few_stages_with_a_small_tape_is_one() -> None:
    """Not a longer one, and not by another plan."""

    def grown(x: float, n: int) -> float:
        for _ in range(n):
            x = x + 1e-9 * x * x
        return x

    def stages(n: int, **plan: Any) -> int:
        (report,) = native.measure(native.grad(grown, **plan), 0.3, n).reports
        return report.reverses

    assert stages(100_000) == 1
    assert stages(100_000, plan=logarithmic(stage=1_000_000)) > 1
    assert stages(600_000) > 3

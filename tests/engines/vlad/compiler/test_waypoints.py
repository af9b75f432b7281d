"""States that the counting run leaves: the same bits, and none that are large."""

import math
from typing import Any

import numpy as np
import pytest

from retape import logarithmic, native
from retape.engines.vlad.language._diagnostics import RunError
from retape.engines.vlad.session import _options


def orbit(x: float, r: float, steps: int) -> float:
    for _ in range(steps):
        x = r * x * (1.0 - x)
    return x


def passage(angle: float, length: float, tolerance: float) -> float:
    speed, t = 0.0, 0.0
    while angle > tolerance:
        speed -= 1e-4 * 9.81 / length * math.sin(angle)
        angle += 1e-4 * speed
        t += 1e-4
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
    (orbit, (0.3, 3.2, 20_000), (0, 1)),
    (passage, (1.0, 2.0, 1e-3), (0, 1)),
    (turned, (np.linspace(0.1, 0.9, 7), 9_000), (0,)),
    (turned, (np.linspace(0.1, 0.9, 2_000), 9_000), (0,)),
    (deep, (0.5, 15_000), (0,)),
]


@pytest.fixture
def short_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_options, "_TYPED_STAGE", 500)


@pytest.mark.usefixtures("short_stages")
@pytest.mark.parametrize(("function", "args", "by"), CASES)
def test_a_gradient_has_the_bits_of_one_without_them(
    function: Any, args: tuple[Any, ...], by: Any
) -> None:
    without = native.grad(function, by, plan=logarithmic(stage=500))(*args)
    gradient = native.grad(function, by)
    for _ in range(2):
        found = gradient(*args)
        assert all(map(np.array_equal, np.atleast_1d(found), np.atleast_1d(without)))


@pytest.mark.usefixtures("short_stages")
def test_they_are_used_and_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    gradient = native.grad(orbit)
    gradient(0.3, 3.2, 10)
    (made,) = gradient._made.values()
    runtime: Any = made.engine
    handles: list[int] = []
    call = type(runtime.native).call

    def watched(self: Any, name: str, **arguments: Any) -> Any:
        done = call(self, name, **arguments)
        if name == "advance":
            handles.append(done.r)
        return done

    monkeypatch.setattr(type(runtime.native), "call", watched)
    for _ in range(4):
        gradient(0.3, 3.2, 20_000)
    # With 32 handles more at each of them, what is left would show.
    assert len(handles) > 40
    assert max(handles[-10:]) <= max(handles[:40]) + 8


@pytest.mark.usefixtures("short_stages")
def test_a_fault_on_the_way_leaves_none() -> None:
    def falls(x: float, steps: int) -> float:
        for _ in range(steps):
            x = x - 0.001
        return math.sqrt(x)

    gradient = native.grad(falls)
    exact = native.grad(falls, engine="interpreter", plan=logarithmic(stage=500))
    for _ in range(3):
        with pytest.raises(RunError, match="math"):
            gradient(1.0, 20_000)
    assert gradient(99.0, 20_000) == exact(99.0, 20_000)


@pytest.mark.usefixtures("short_stages")
def test_runs_within_a_run_leave_none() -> None:
    twice = native.grad(native.grad(orbit))
    one = native.grad(
        native.grad(orbit, plan=logarithmic(stage=500)), plan=logarithmic(stage=500)
    )
    assert twice(0.3, 3.2, 9_000) == pytest.approx(one(0.3, 3.2, 9_000), rel=1e-12)


def test_a_run_of_up_to_four_stages_is_one_if_its_tape_is_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not a longer one, and not by another plan."""

    def grown(x: float, n: int) -> float:
        for _ in range(n):
            x = x + 1e-6 * x * x
        return x

    monkeypatch.setattr(_options, "_TYPED_STAGE", 20_000)
    default = native.grad(grown)
    planned = native.grad(grown, plan=logarithmic(stage=20_000))
    slope = default(0.3, 2_000)
    assert _stages(default) == 1
    assert slope == pytest.approx(planned(0.3, 2_000), rel=1e-13)
    assert _stages(planned) > 1
    default(0.3, 12_000)
    assert _stages(default) > 3


def _stages(gradient: Any) -> int:
    (made,) = gradient._made.values()
    return made.engine.native.typed_stages()[0]

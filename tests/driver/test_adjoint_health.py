"""Adjoints that go wrong: the step, the line and the variable are named."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import retape
from tests.programs import run_program

STEPS, AT = 300, 123
X = np.asarray([0.5, 1.5, 2.5])


def turn(x: Any, k: int) -> Any:
    """A rotation, so that nothing grows or fades."""
    return np.roll(x, 1) + 0.0


def turn_back(x: Any, k: int, g: Any) -> Any:
    return np.roll(g, -1) + 0.0


def run(reverse: Any = turn_back, step: Any = turn, x0: Any = X, **options: Any) -> Any:
    options = {"seed": np.ones_like, "steps": STEPS, "plan": None} | options
    with np.errstate(all="ignore"):
        return run_program(step, reverse, x0, **options, call=retape.diagnose)


# Seeded faults: what is called at step AT, the line at fault, the variable. ----------


def masked_root(x: Any, k: int, g: Any) -> Any:
    root = np.sqrt(np.maximum(x - 100.0, 0.0))
    slope = 0.5 / root
    return g + np.where(x > 100.0, slope, 0.0) + slope * 0.0


def quotient(x: Any, k: int, g: Any) -> Any:
    zero = x - x
    g = g / zero
    return g


def logarithm(x: Any, k: int, g: Any) -> Any:
    return g * np.log(x - x)


def in_place(x: Any, k: int, g: Any) -> Any:
    g[1] *= np.inf
    return g


def power(x: Any, k: int, g: Any) -> Any:
    slope = 0.5 * (x * 0.0) ** -0.5
    return g * slope


def inner(x: Any) -> Any:
    size = np.linalg.norm(x - x)
    return x / size


def in_a_function(x: Any, k: int, g: Any) -> Any:
    return g + inner(x)


def in_a_loop(x: Any, k: int, g: Any) -> Any:
    for i in range(3):
        h = x[i] - 1.5
        g[i] = g[i] / h
    return g


def overflow(x: Any, k: int, g: Any) -> Any:
    big = np.exp(1000.0 * x)
    return g * big


class Kept:
    """An adjoint that keeps its cotangent."""

    def __init__(self) -> None:
        self.g = np.zeros(3)

    def __call__(self, x: Any, k: int, g: Any) -> Any:
        self.g = g * np.arctan2(x - x, x - x) / (x - x)
        return self.g


def by_autograd(x: Any, k: int, g: Any) -> Any:
    with torch.enable_grad():
        y = torch.as_tensor(x).requires_grad_()
        out = torch.sqrt(y - y.detach()).sum()
        (more,) = torch.autograd.grad(out, y)
    return g + more.numpy()


FAULTS = {
    masked_root: ("slope = 0.5 / root", "slope"),
    quotient: ("g = g / zero", "g"),
    logarithm: ("return g * np.log(x - x)", "the result"),
    in_place: ("g[1] *= np.inf", "g"),
    power: ("slope = 0.5 * (x * 0.0) ** -0.5", "slope"),
    in_a_function: ("return x / size", "the result"),
    in_a_loop: ("g[i] = g[i] / h", "g"),
    overflow: ("big = np.exp(1000.0 * x)", "big"),
    Kept(): ("self.g = g * np.arctan2(x - x, x - x) / (x - x)", "self.g"),
    by_autograd: ("(more,) = torch.autograd.grad(out, y)", "more"),
}


@pytest.mark.parametrize("bad", FAULTS, ids=lambda f: getattr(f, "__name__", "Kept"))
def test_a_derivative_that_is_not_finite(bad: Any) -> None:
    """All states are finite: only the way back knows."""
    done = run(lambda x, k, g: (bad if k == AT else turn_back)(x, k, g))
    assert np.all(np.isfinite(done.state)) and not np.all(np.isfinite(done.cotangent))
    fault = done.health.fault
    assert (fault.kind, fault.step, fault.steps) == ("reverse", AT, STEPS)
    assert (fault.text, fault.variable) == FAULTS[bad]
    assert fault.operation == "reverse_step" and "test_adjoint_health.py:" in fault.line
    assert fault.before == 1.0 and fault.after == np.inf


@pytest.mark.parametrize("at", [0, 1, STEPS - 2, STEPS - 1])
def test_the_first_and_the_last_steps(at: int) -> None:
    done = run(lambda x, k, g: g / (x - x) if k == at else turn_back(x, k, g))
    assert done.health.fault.step == at


def test_an_adjoint_that_explodes() -> None:
    def reverse(x: Any, k: int, g: Any) -> Any:
        factor = 1e9 if k == AT else 1.0
        h = factor * g
        return np.roll(h, -1)

    done = run(reverse)
    assert np.all(np.isfinite(done.cotangent))
    fault = done.health.fault
    assert (fault.kind, fault.step, fault.variable) == ("growth", AT, "factor")
    assert fault.text.startswith("factor = 1e9 if") and fault.after == 1e9
    calm = run(reverse, growth=1e12)
    assert calm.health.fault is None and max(calm.health.norms) == 1e9


def test_growth_that_is_slow_and_long() -> None:
    done = run(lambda x, k, g: 2.0 * g if k < 30 else g, growth=1000.0)
    assert (done.health.fault.kind, done.health.fault.step) == ("growth", 20)


def test_a_state_that_is_not_finite() -> None:
    def step(x: Any, k: int) -> Any:
        y = np.roll(x, 1) + 0.0
        return np.log(y - 100.0) if k == AT else y

    done = run(lambda x, k, g: g * np.cos(x), step)
    fault = done.health.fault
    assert (fault.kind, fault.step, fault.operation) == ("forward", AT, "step")
    assert fault.text == "return np.log(y - 100.0) if k == AT else y"


def test_a_state_that_no_cotangent_depends_on() -> None:
    def step(x: Any, k: int) -> Any:
        y = 1.01 * x
        if k == 7:
            y = y + np.array([0.0, np.nan, 0.0])
        return y

    how: Any = {"seed": np.ones_like, "steps": 20, "call": retape.diagnose}
    found = run_program(step, lambda x, k, g: 1.01 * g, np.ones(3), **how)
    assert np.isfinite(found.cotangent).all()
    fault = found.health.fault
    assert (fault.kind, fault.step) == ("forward", 7)
    assert "np.nan" in fault.text


def test_a_cost_that_no_cotangent_depends_on() -> None:
    def cost(x: Any, k: int) -> float:
        return float("inf") if k == 5 else 0.0

    found = retape.diagnose(
        retape.Program(
            lambda x, k: 1.01 * x,
            lambda x, k, g: 1.01 * g,
            cost=cost,
            cost_gradient=lambda x, k: 0.0 * x,
        ),
        np.ones(3),
        seed=np.ones_like,
        steps=9,
    )
    fault = found.health.fault
    assert (fault.kind, fault.step, fault.operation[:4]) == ("forward", 5, "cost")
    assert "def cost" in fault.text


def test_a_seed_and_a_cost_that_are_not_finite() -> None:
    done = run(seed=lambda x: x / (x - x))
    assert (done.health.fault.step, done.health.fault.operation) == (STEPS, "seed")

    def slope(x: Any, k: int) -> Any:
        return x / (0.0 if k == AT else 1.0)

    done = run(cost=lambda x, k: 0.0, cost_gradient=slope)
    fault = done.health.fault
    assert (fault.step, fault.operation) == (AT, "cost_gradient")
    done = run(
        cost=lambda x, k: 0.0, cost_gradient=lambda x, k: x / (k - STEPS), seed=None
    )
    assert (done.health.fault.step, done.health.fault.operation) == (
        STEPS,
        "cost_gradient",
    )


def test_a_tape_a_predicate_and_a_store(tmp_path: Path) -> None:
    """The fault is found again with four snapshots in memory, whatever the store."""

    def reverse(kept: Any, k: int, g: Any) -> Any:
        return g / (kept - kept) if k == AT else g

    done = run(
        reverse,
        steps=None,
        done=lambda s: s[1] >= STEPS,
        step=lambda s, k: (s[0], s[1] + 1),
        tape=lambda s, k: ((s[0], s[1] + 1), s[0]),
        x0=(X, 0),
        seed=lambda s: s[0],
        store=retape.DiskStore(tmp_path),
    )
    assert (done.health.fault.kind, done.health.fault.step) == ("reverse", AT)


def test_all_is_well() -> None:
    done = run()
    assert done.health.fault is None and str(done.health).endswith("fault     none")
    assert done.health.norms == (1.0,) * 30 and done.health.steps_per_norm == 10
    assert (
        retape.adjoint(
            retape.Program(turn, turn_back), X, seed=np.ones_like, steps=3
        ).health
        is None
    )
    empty = run(steps=0)
    assert empty.health.fault is None and empty.health.norms == (1.0,)


def test_numbers_and_trees_of_them() -> None:
    done = retape.diagnose(
        retape.Program(
            lambda x, k: {"a": x["a"] * 0.0, "n": x["n"] + 1},
            lambda x, k, g: {"a": g["a"] + (np.inf if k == 3 else 0.0), "n": 0},
        ),
        {"a": 1.0, "n": 0},
        seed=lambda x: {"a": 1.0, "n": 0},
        steps=9,
    )
    assert done.health.fault is not None and done.health.fault.step == 3


def test_functions_that_do_other_things_each_time() -> None:
    calls = itertools.count()

    def reverse(x: Any, k: int, g: Any) -> Any:
        return g * (np.nan if next(calls) == 5 else 1.0)

    with pytest.raises(
        retape.DeterminismError, match="They give other results each time"
    ):
        run(reverse)


# Growth that comes and goes: every step is looked at. ---------------------------------


def comes_and_goes(x: Any, k: int, g: Any) -> Any:
    factor = {AT: 1e9, AT - 1: 1e-9}.get(k, 1.0)
    return np.roll(factor * g, -1)


STARTS: dict[str, Any] = {
    "small": X,
    "large": np.ones(5000),
    "single": X.astype(np.float32),
    "complex": X + 1j,
    "planes": np.ones((3, 4)).T,
}


@pytest.mark.parametrize("x0", STARTS.values(), ids=STARTS)
def test_growth_that_comes_and_goes_between_two_norms(x0: Any) -> None:
    done = run(comes_and_goes, x0=x0)
    health = done.health
    assert max(health.norms) < 10 and health.steps_per_look == 1
    assert (health.fault.kind, health.fault.step) == ("growth", AT)
    assert run(comes_and_goes, x0=x0, growth=1e10).health.fault is None


def test_a_fault_in_one_variable_that_is_dropped_again() -> None:
    """NaN in one part of the cotangent for one step: the result is finite."""

    def reverse(x: Any, k: int, g: Any) -> Any:
        t = g["x"][0] / (0.0 if k == AT else 1.0)
        return {"t": np.float64(t), "x": g["x"] * 1.0, "k": 0}

    x0 = {"x": X, "t": np.float64(1.0), "k": 0}
    done = run(reverse, step=lambda x, k: x, x0=x0, seed=lambda x: x)
    assert np.all(np.isfinite(done.cotangent["x"])) and done.cotangent["t"] == 0.5
    fault = done.health.fault
    assert (fault.kind, fault.step, fault.variable) == ("reverse", AT, "t")


def test_what_is_on_a_device_is_looked_at_now_and_then_and_that_is_said() -> None:
    jnp = pytest.importorskip("jax.numpy")
    still = {"step": lambda x, k: x, "x0": jnp.ones(3), "seed": jnp.ones_like}
    done = run(lambda x, k, g: g, **still, steps=64)
    assert done.health.steps_per_look == done.health.steps_per_norm == 2
    assert "looked at every 2 steps" in str(done.health)
    assert "looked at" not in str(run(steps=64).health)


@pytest.mark.parametrize("size", [3, 5000])
def test_numbers_whose_squares_are_none(size: int) -> None:
    """Squares overflow and underflow: it is asked in another way, and no one warns."""
    for scale in (1e200, 1e-200):
        with np.errstate(all="raise"):
            done = retape.diagnose(
                retape.Program(
                    lambda x, k: x,
                    lambda x, k, g: (
                        g * (1e9 if k == AT else 1e-9 if k == AT - 1 else 1.0)
                    ),
                ),
                np.ones(size),
                seed=lambda x, s=scale: s * np.ones(size),
                steps=STEPS,
            )
        assert done.health is not None and done.health.fault is not None
        assert done.health.fault.step == AT

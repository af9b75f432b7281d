"""Adjoints that go wrong: the step, the line and the variable are named."""

from __future__ import annotations

import itertools
from collections.abc import Callable
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


def still(x: Any, k: int) -> Any:
    return x


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
    in_a_function: ("return x / size", "the result"),
    in_a_loop: ("g[i] = g[i] / h", "g"),
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


def grown(x: Any, k: int, g: Any) -> Any:
    factor = 1e9 if k == AT else 1.0
    h = factor * g
    return np.roll(h, -1)


def test_growth_names_its_line_and_a_larger_one_may_be_allowed() -> None:
    done = run(grown)
    fault = done.health.fault
    assert np.all(np.isfinite(done.cotangent)) and fault.variable == "factor"
    assert (fault.kind, fault.step, fault.operation) == ("growth", AT, "reverse_step")
    assert fault.text.startswith("factor = 1e9 if") and fault.after == 1e9
    calm = run(grown, growth=1e12)
    assert calm.health.fault is None and max(calm.health.norms) == 1e9


def lost(x: Any, k: int) -> Any:
    y = turn(x, k)
    return np.log(y - 100.0) if k == AT else y


def spoilt(x: Any, k: int) -> Any:
    return turn(x, k) + (np.array([0.0, np.nan, 0.0]) if k == 7 else 0.0)


def no_cost(x: Any, k: int) -> float:
    return 0.0


def infinite_cost(x: Any, k: int) -> float:
    return float("inf") if k == 5 else 0.0


def nan_at(at: int) -> Any:
    return lambda x, k, g: g / (x - x) if k == at else turn_back(x, k, g)


COUNTED: dict[str, Any] = {
    "reverse": lambda kept, k, g: g / (kept - kept) if k == AT else g,
    "steps": None,
    "done": lambda s: s[1] >= STEPS,
    "step": lambda s, k: (s[0], s[1] + 1),
    "tape": lambda s, k: ((s[0], s[1] + 1), s[0]),
    "x0": (X, 0),
    "seed": lambda s: s[0],
}
"""A tape and a predicate."""
TREE: dict[str, Any] = {
    "step": lambda x, k: {"a": x["a"] * 0.0, "n": x["n"] + 1},
    "reverse": lambda x, k, g: {"a": g["a"] + (np.inf if k == 3 else 0.0), "n": 0},
    "x0": {"a": 1.0, "n": 0},
    "seed": lambda x: {"a": 1.0, "n": 0},
}
SLOW_GROWTH: dict[str, Any] = {
    "reverse": lambda x, k, g: 2.0 * g if k < 30 else g,
    "growth": 1000.0,
}
WITH_COST: dict[str, Any] = {"cost": no_cost, "seed": None}
ROWS: list[tuple[dict[str, Any], str, int, str, str]] = [
    *(({"reverse": nan_at(k)}, "reverse", k, "", "") for k in (0, 1, 298, 299)),
    (SLOW_GROWTH, "growth", 20, "", ""),
    ({"step": lost}, "forward", AT, "step", "return np.log(y - 100.0) if k == AT else"),
    # States and costs that no cotangent depends on.
    ({"step": spoilt}, "forward", 7, "step", "np.nan"),
    (WITH_COST | {"cost": infinite_cost, "cost_gradient": lambda x, k: 0 * x},
     "forward", 5, "cost", "def infinite_cost"),
    ({"seed": lambda x: x / (x - x)}, "", STEPS, "seed", ""),
    (WITH_COST | {"cost_gradient": lambda x, k: x / (0.0 if k == AT else 1.0)},
     "", AT, "cost_gradient", ""),
    (WITH_COST | {"cost_gradient": lambda x, k: x / (k - STEPS)},
     "", STEPS, "cost_gradient", ""),
    (COUNTED, "reverse", AT, "", ""),
    (TREE, "reverse", 3, "", ""),
]  # fmt: skip


@pytest.mark.parametrize(("options", "kind", "step", "operation", "text"), ROWS)
def test_the_fault_is_found_and_named(
    options: Any, kind: str, step: int, operation: str, text: str, tmp_path: Path,
) -> None:  # fmt: skip
    """It is looked for again with four snapshots in memory, whatever the store."""
    store = {"store": retape.DiskStore(tmp_path)} if step % 2 else {}
    fault = run(**options, **store).health.fault
    assert fault.step == step and (not kind or fault.kind == kind)
    assert fault.operation.startswith(operation) and text in fault.text


def test_all_is_well() -> None:
    done = run()
    assert done.health.fault is None and str(done.health).endswith("fault     none")
    assert done.health.norms == (1.0,) * 30 and done.health.steps_per_norm == 10
    program = retape.Program(turn, turn_back)
    assert retape.adjoint(program, X, seed=np.ones_like, steps=3).health is None
    empty = run(steps=0)
    assert empty.health.fault is None and empty.health.norms == (1.0,)


def test_functions_that_do_other_things_each_time() -> None:
    calls = itertools.count()
    changing = lambda x, k, g: g * (np.nan if next(calls) == 5 else 1.0)  # noqa: E731
    said = "They give other results each time"
    with pytest.raises(retape.DeterminismError, match=said):
        run(changing)


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
    health = run(comes_and_goes, x0=x0).health
    assert max(health.norms) < 10 and health.steps_per_look == 1
    assert (health.fault.kind, health.fault.step) == ("growth", AT)
    assert run(comes_and_goes, x0=x0, growth=1e10).health.fault is None


@pytest.mark.parametrize("size", [3, 5000])
@pytest.mark.parametrize("scale", [1e200, 1e-200])
def test_numbers_whose_squares_are_none(size: int, scale: float) -> None:
    """Squares overflow and underflow: it is asked in another way, and no one warns."""
    program = retape.Program(still, comes_and_goes)
    seed = lambda x: scale * np.ones(size)  # noqa: E731
    with np.errstate(all="raise"):
        done = retape.diagnose(program, np.ones(size), seed=seed, steps=STEPS)
    assert done.health is not None and done.health.fault is not None
    assert done.health.fault.step == AT


def test_a_fault_in_one_variable_that_is_dropped_again() -> None:
    """NaN in one part of the cotangent for one step: the result is finite."""

    def reverse(x: Any, k: int, g: Any) -> Any:
        t = g["x"][0] / (0.0 if k == AT else 1.0)
        return {"t": np.float64(t), "x": g["x"] * 1.0, "k": 0}

    x0 = {"x": X, "t": np.float64(1.0), "k": 0}
    done = run(reverse, step=still, x0=x0, seed=lambda x: x)
    assert np.all(np.isfinite(done.cotangent["x"])) and done.cotangent["t"] == 0.5
    fault = done.health.fault
    assert (fault.kind, fault.step, fault.variable) == ("reverse", AT, "t")


def test_what_is_on_a_device_is_looked_at_now_and_then_and_that_is_said() -> None:
    jnp = pytest.importorskip("jax.numpy")
    far = {"step": still, "x0": jnp.ones(3), "seed": jnp.ones_like}
    done = run(lambda x, k, g: g, **far, steps=64)
    assert done.health.steps_per_look == done.health.steps_per_norm == 2
    assert "looked at every 2 steps" in str(done.health)
    assert "looked at" not in str(run(steps=64).health)


# The first cotangent that is too large is found, in any tree and at any step. ---------


TREES: dict[str, Callable[[float], Any]] = {
    "array": lambda size: np.full(7, size),
    "rows with gaps": lambda size: np.full((3, 5), size, np.float32)[:, ::2],
    "complex": lambda size: np.full(3, size * 1j),
    "number": float,
    "NumPy's number": np.float64,
    "tensor": lambda size: torch.full((9,), size),
    "bfloat16": lambda size: torch.full((3,), size, dtype=torch.bfloat16),
    "tree": lambda size: (1.5, {"a": [np.full(3, size), 0.5], "b": -0.5}),
    "last of many": lambda size: np.append(np.zeros(20_000), -size),
}


@pytest.mark.parametrize("tree", TREES)
def test_the_first_of_all_that_is_too_large(tree: str) -> None:
    make = TREES[tree]
    for at, bad in itertools.product((1, 64, 127), (1e9, np.nan)):
        sizes = {at: bad, max(0, at - 40): bad}
        reverse = lambda x, k, g, sizes=sizes: make(sizes.get(k, 1.0))  # noqa: E731
        found = run(reverse, still, 1.0, seed=lambda x: make(1.0), steps=150).health
        assert found.fault is not None and found.fault.step == at
    calm = run(lambda x, k, g: make(9e5), still, 1.0, seed=lambda x: make(1.0))
    assert calm.health.fault is None

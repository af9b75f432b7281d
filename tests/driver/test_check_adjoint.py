"""The dot-product and the Taylor test: they accept what is right, and nothing else."""

from dataclasses import dataclass

import numpy as np
import pytest

import retape
from retape import MachineError, PlanError
from tests.programs import run_program

MATRIX = np.random.default_rng(3).normal(size=(4, 4)) * 0.5


def step(x, k):
    x[:] = np.tanh(MATRIX @ x + 0.1 * k)
    return x


def reverse_step(x, k, g):
    return MATRIX.T @ (g * (1 - np.tanh(MATRIX @ x + 0.1 * k) ** 2))


def tangent(x, k, v):
    return (1 - np.tanh(MATRIX @ x + 0.1 * k) ** 2) * (MATRIX @ v)


X0 = np.linspace(0.1, 0.4, 4)


def checked(reverse=reverse_step, step=step, x0=X0, steps=5, **options):
    return run_program(
        step, reverse, x0, steps=steps, **options, call=retape.check_adjoint
    )


def test_a_right_adjoint_passes_and_its_text_says_so():
    check = checked(steps=12)
    assert check.ok and 1.9 < check.order < 2.1
    assert sorted(check.errors) == list(range(12))
    assert max(check.errors.values()) < 1e-9
    text = str(check)
    assert text.startswith("dot-product test of 12 steps: the worst error is ")
    assert "Taylor test: order 2.0" in text and text.count("R = ") == 6
    assert X0.tolist() == np.linspace(0.1, 0.4, 4).tolist()
    # With a tangent model the steps are tried to the last digits.
    check = checked(steps=12, tangent=tangent)
    assert check.ok and max(check.errors.values()) < 1e-14
    assert check.tolerance < 1e-11


def test_the_step_that_is_wrong_is_named():
    def wrong(x, k, g):
        return reverse_step(x, k, g) * (1.001 if k == 7 else 1.0)

    check = checked(wrong, steps=12)
    assert not check.ok and check.worst_step == 7
    assert "wrong in 1, first in step 7" in str(check)


WRONG = {
    "not transposed": lambda x, k, g: MATRIX @ (g * (1 - step(x.copy(), k) ** 2)),
    "no factor": lambda x, k, g: MATRIX.T @ g,
    "a sign": lambda x, k, g: -reverse_step(x, k, g),
    "the state after": lambda x, k, g: reverse_step(step(x.copy(), k), k, g),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_adjoint_fails_both_tests(kind):
    check = checked(WRONG[kind])
    assert not check.ok and max(check.errors.values()) > 1e-3
    assert check.order < 1.2


SEEDED = {"value": lambda x: 0.5 * float(x @ x)}
COST = {
    "reverse": lambda slope, k, g: MATRIX.T @ (g * slope),
    "tape": lambda x, k: (step(x, k), 1 - x**2),
    "cost": lambda x, k: float((x**3).sum()),
}


@pytest.mark.parametrize(
    ("options", "ok"),
    [
        (SEEDED | {"seed": np.copy}, True),
        (SEEDED | {"seed": lambda x: 2 * x}, False),
        (COST | {"cost_gradient": lambda x, k: 3 * x**2}, True),
        (COST | {"cost_gradient": lambda x, k: 2 * x**2}, False),
    ],
)
def test_wrong_seeds_and_costs_fail_where_all_steps_are_right(options, ok):
    check = checked(**options)
    assert check.ok is ok and max(check.errors.values()) < 1e-9
    assert ok or check.order < 1.2


@dataclass
class Model:
    u: np.ndarray
    rate: float
    name: str = "a model"


def test_parameters_in_the_state_and_states_of_any_kind():
    def run(x, k):
        return Model(x.u * (1 + 0.1 * x.rate), x.rate, x.name)

    def reverse(x, k, g):
        return Model(g.u * (1 + 0.1 * x.rate), g.rate + 0.1 * float(g.u @ x.u), x.name)

    forgets = lambda x, k, g: Model(reverse(x, k, g).u, g.rate)  # noqa: E731
    assert checked(reverse, run, Model(X0, 0.3)).ok
    assert not checked(forgets, run, Model(X0, 0.3)).ok


@pytest.mark.parametrize("kind", [np.float32, np.complex128, np.longdouble])
def test_numbers_of_other_kinds(kind):
    x0 = (X0 * (1 + 0.3j)).astype(kind) if kind is np.complex128 else X0.astype(kind)

    def run(x, k):
        return x + x**2 * kind(0.1)

    def reverse(x, k, g):
        return g * (1 + kind(0.2) * x).conjugate()

    assert checked(reverse, run, x0).ok
    assert not checked(lambda x, k, g: g, run, x0).ok


def test_linear_long_and_empty_runs():
    check = checked(lambda x, k, g: 1.5 * g, lambda x, k: 1.5 * x)
    assert check.ok and check.order is None
    assert "Taylor test: rounding errors" in str(check)
    assert sorted(checked(steps=100, tried=4).errors) == [0, 25, 50, 75]
    empty = checked(steps=0)
    assert empty.ok and empty.worst_step is None


def test_a_cotangent_without_the_shapes_of_the_state_is_refused():
    with pytest.raises(MachineError, match="so that their product is unknown"):
        checked(
            lambda x, k, g: {"g": reverse_step(x, k, g["g"])},
            value=lambda x: float(x.sum()),
            seed=lambda x: {"g": np.ones(4)},
        )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"seed": np.copy}, "pass both, a number of the last state and it"),
        ({"cost": lambda x, k: 0.0}, "pass both or neither"),
        ({"steps": 3.0}, "`steps=3.0` is not an integer"),
    ],
)
def test_arguments_that_do_not_go_together_are_named(options, said):
    with pytest.raises(PlanError, match=said):
        checked(**options)

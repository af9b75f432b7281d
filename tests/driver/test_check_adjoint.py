"""The dot-product and the Taylor test: they accept what is right, and nothing else."""

from dataclasses import dataclass

import numpy as np
import pytest

import retape
from retape import PlanError
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


def test_a_right_adjoint_passes_and_its_text_says_so():
    check = retape.check_adjoint(retape.Program(step, reverse_step), X0, steps=12)
    assert check.ok and 1.9 < check.order < 2.1
    assert sorted(check.errors) == list(range(12))
    assert max(check.errors.values()) < 1e-9
    text = str(check)
    assert text.startswith("dot-product test of 12 steps: the worst error is ")
    assert "Taylor test: order 2.0" in text and text.count("R = ") == 6
    assert X0.tolist() == np.linspace(0.1, 0.4, 4).tolist()


def test_with_a_tangent_model_the_steps_are_tried_to_the_last_digits():
    check = retape.check_adjoint(
        retape.Program(step, reverse_step), X0, steps=12, tangent=tangent
    )
    assert check.ok and max(check.errors.values()) < 1e-14
    assert check.tolerance < 1e-11


def test_the_step_that_is_wrong_is_named():
    def wrong(x, k, g):
        return reverse_step(x, k, g) * (1.001 if k == 7 else 1.0)

    check = retape.check_adjoint(retape.Program(step, wrong), X0, steps=12)
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
    check = retape.check_adjoint(retape.Program(step, WRONG[kind]), X0, steps=5)
    assert not check.ok and max(check.errors.values()) > 1e-3
    assert check.order < 1.2


def test_a_value_with_a_wrong_seed_fails_where_all_steps_are_right():
    def value(x):
        return 0.5 * float(x @ x)

    right = retape.check_adjoint(
        retape.Program(step, reverse_step), X0, steps=5, value=value, seed=np.copy
    )
    wrong = retape.check_adjoint(
        retape.Program(step, reverse_step),
        X0,
        steps=5,
        value=value,
        seed=lambda x: 2 * x,
    )
    assert right.ok and not wrong.ok
    assert max(wrong.errors.values()) < 1e-9 and wrong.order < 1.2


def test_costs_and_tapes_are_tested_too():
    options = {
        "tape": lambda x, k: (step(x, k), 1 - x**2),
        "cost": lambda x, k: float((x**3).sum()),
    }
    by_tape = lambda slope, k, g: MATRIX.T @ (g * slope)  # noqa: E731
    for factor, ok in ((3, True), (2, False)):
        check = run_program(
            step,
            by_tape,
            X0,
            steps=6,
            cost_gradient=lambda x, k, factor=factor: factor * x**2,
            **options,
            call=retape.check_adjoint,
        )
        assert check.ok is ok and max(check.errors.values()) < 1e-9


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

    assert retape.check_adjoint(
        retape.Program(run, reverse), Model(X0, 0.3), steps=6
    ).ok
    forgets = lambda x, k, g: Model(reverse(x, k, g).u, g.rate)  # noqa: E731
    assert not retape.check_adjoint(
        retape.Program(run, forgets), Model(X0, 0.3), steps=6
    ).ok


@pytest.mark.parametrize("kind", [np.float32, np.complex128, np.longdouble])
def test_numbers_of_other_kinds(kind):
    x0 = (X0 * (1 + 0.3j)).astype(kind) if kind is np.complex128 else X0.astype(kind)

    def run(x, k):
        return x + x**2 * kind(0.1)

    def reverse(x, k, g):
        return g * (1 + kind(0.2) * x).conjugate()

    assert retape.check_adjoint(retape.Program(run, reverse), x0, steps=4).ok
    assert not retape.check_adjoint(
        retape.Program(run, lambda x, k, g: g), x0, steps=4
    ).ok


def test_a_linear_run_leaves_rounding_errors():
    check = retape.check_adjoint(
        retape.Program(lambda x, k: 1.5 * x, lambda x, k, g: 1.5 * g), X0, steps=9
    )
    assert check.ok and check.order is None
    assert "Taylor test: rounding errors" in str(check)


def test_long_runs_are_tried_at_some_steps_and_empty_ones_at_none():
    check = retape.check_adjoint(
        retape.Program(step, reverse_step), X0, steps=100, tried=4
    )
    assert sorted(check.errors) == [0, 25, 50, 75]
    empty = retape.check_adjoint(retape.Program(step, reverse_step), X0, steps=0)
    assert empty.ok and empty.worst_step is None


def test_a_product_of_ones_own():
    """Cotangents need not have the shape of the state."""

    def reverse(x, k, g):
        return {"g": reverse_step(x, k, g["g"])}

    check = retape.check_adjoint(
        retape.Program(step, reverse),
        X0,
        steps=5,
        value=lambda x: float(x.sum()),
        seed=lambda x: {"g": np.ones(4)},
        inner=lambda g, v: float(g["g"] @ v),
    )
    assert check.ok


def test_arguments_that_do_not_go_together_are_named():
    with pytest.raises(PlanError, match="pass both, a number of the last state and it"):
        retape.check_adjoint(
            retape.Program(step, reverse_step), X0, steps=3, seed=np.copy
        )
    with pytest.raises(PlanError, match="pass both or neither"):
        retape.check_adjoint(
            retape.Program(step, reverse_step, cost=lambda x, k: 0.0), X0, steps=3
        )
    with pytest.raises(PlanError, match="`steps=3.0` is not an integer"):
        retape.check_adjoint(retape.Program(step, reverse_step), X0, steps=3.0)

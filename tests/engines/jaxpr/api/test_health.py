"""Gradients that go wrong: the step, the line and the operation are named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import retape
import retape.jax

STEPS, AT = 40, 23
PLAN = retape.fixed_space(snapshots=4, stage=3)
X = np.asarray([0.5, 1.5, 2.5])


def run(step: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """A run of which one step is another one."""

    def fun(x: Any) -> Any:
        def body(i: Any, y: Any) -> Any:
            return jax.lax.cond(i == AT, step, lambda y, x: 0.9 * jnp.sin(y), y, x)

        return jnp.sum(jax.lax.fori_loop(0, STEPS, body, x) ** 2)

    return fun


@jax.custom_jvp
def by_hand(y: Any) -> Any:
    return y


by_hand.defjvp(lambda p, t: (p[0], t[0] / (p[0] - p[0])))


def masked_root(y: Any, x: Any) -> Any:
    return y + jnp.sqrt(jnp.maximum(y - 100.0, 0.0))


def masked_quotient(y: Any, x: Any) -> Any:
    zero = y - y
    return jnp.where(zero == 0, y, y / zero)


def norm_of_zero(y: Any, x: Any) -> Any:
    return y + jnp.linalg.norm(y - jax.lax.stop_gradient(y))


def power_of_zero(y: Any, x: Any) -> Any:
    return y + (y * 0.0) ** 0.5


def own_rule(y: Any, x: Any) -> Any:
    return by_hand(y)


def in_a_branch(y: Any, x: Any) -> Any:
    return jax.lax.cond(y[0] > -1, lambda y: y + jnp.sqrt(y * 0.0), jnp.sin, y)


def in_a_scan(y: Any, x: Any) -> Any:
    def body(c: Any, x: Any) -> Any:
        return c * x + jnp.where(x == 3.0, jnp.sqrt(c * 0.0), 0.0), c

    return y + jax.lax.scan(body, y[0], jnp.asarray([1.0, 3.0, 2.0]))[0]


def only_the_parameter(y: Any, x: Any) -> Any:
    return y + jnp.sqrt(x * 0.0)


FAULTS = {
    masked_root: ("reverse", "sqrt", "jnp.sqrt(jnp.maximum(y - 100.0, 0.0))"),
    masked_quotient: ("reverse", "div", "jnp.where(zero == 0, y, y / zero)"),
    norm_of_zero: ("reverse", "sqrt", "jnp.linalg.norm("),
    power_of_zero: ("reverse", "pow", "(y * 0.0) ** 0.5"),
    own_rule: ("reverse", "custom_jvp_call", "return by_hand(y)"),
    in_a_branch: ("reverse", "sqrt", "jnp.sqrt(y * 0.0)"),
    only_the_parameter: ("reverse", "sqrt", "jnp.sqrt(x * 0.0)"),
}


@pytest.mark.slow(
    "in_a_branch",
    "masked_root",
    "norm_of_zero",
    "only_the_parameter",
    "masked_quotient",
    "power_of_zero",
)
@pytest.mark.parametrize("step", FAULTS, ids=lambda f: f.__name__)
def test_a_derivative_that_is_not_finite(step: Any) -> None:
    """Forward all is well: only the way back knows."""
    kind, operation, text = FAULTS[step]
    done = retape.jax.measure(run(step), X, plan=PLAN, health=True)
    assert np.isfinite(done.value) and not np.all(np.isfinite(done.gradient))
    fault = done.health.fault
    # What is before the loop is a step of its own.
    assert (fault.kind, fault.step) == (kind, AT + 1)
    assert fault.operation == operation and text in fault.text
    assert "test_health.py:" in fault.line and np.isfinite(fault.before)
    assert fault.variable and fault.variable in fault.text


@pytest.mark.slow
def test_a_scan_that_is_a_part_of_a_step_is_gone_into() -> None:
    def fun(x: Any) -> Any:
        def body(c: Any) -> Any:
            sine = lambda y, x: 0.9 * jnp.sin(y)  # noqa: E731
            return c[0] + 1, jax.lax.cond(c[0] == AT, in_a_scan, sine, c[1], x)

        # Of a length that is not known, so that the scan alone is a part of a step.
        going = lambda c: (c[0] < STEPS) & (c[1][0] < 9.0)  # noqa: E731
        return jnp.sum(jax.lax.while_loop(going, body, (0, x))[1] ** 2)

    fault = retape.jax.measure(fun, X, plan=PLAN, health=True).health.fault
    assert (fault.step, fault.operation) == (AT + 1, "sqrt")
    assert fault.variable == "jnp.sqrt(c * 0.0)"


def test_a_value_that_is_not_finite() -> None:
    def step(y: Any, x: Any) -> Any:
        return jnp.log(y - 100.0)

    done = retape.jax.measure(run(step), X, plan=PLAN, health=True)
    assert np.isnan(done.value)
    fault = done.health.fault
    assert (fault.kind, fault.operation) == ("forward", "log")
    assert fault.step == AT + 1 and fault.text == "return jnp.log(y - 100.0)"


@pytest.mark.slow
def test_a_step_that_explodes() -> None:
    def step(y: Any, x: Any) -> Any:
        return jnp.sin(1e9 * y)

    done = retape.jax.measure(run(step), X, plan=PLAN, health=True)
    assert np.all(np.isfinite(done.gradient))
    fault = done.health.fault
    assert (fault.kind, fault.step, fault.operation) == ("growth", AT + 1, "mul")
    assert fault.text == "return jnp.sin(1e9 * y)" and fault.after > 1e6 * fault.before


def test_a_loop_of_unknown_length_that_grows_slowly_and_long() -> None:
    """Each step doubles; the factor that is allowed is passed after ten of them."""

    def fun(x: Any) -> Any:
        def body(carry: Any) -> Any:
            y, t = carry
            return jnp.where(t < 30, 2.0 * y, y), t + 1.0

        return jnp.sum(jax.lax.while_loop(lambda c: c[1] < 50.0, body, (x, 0.0))[0])

    done = retape.jax.measure(fun, X, plan=PLAN, health=True, growth=1000.0)
    assert done.health.fault.kind == "growth"
    # Steps 1 to 30 double; backwards, 2**10 is passed at the tenth of them.
    assert done.health.fault.step == 30 - 9
    calm = retape.jax.measure(fun, X, plan=PLAN, health=True, growth=1e12)
    assert calm.health.fault is None and max(calm.health.norms) >= 2.0**27
    assert str(calm.health).endswith("fault     none")


def test_norms_stand_for_all_steps_in_a_fixed_number_of_rows() -> None:
    def fun(x: Any) -> Any:
        def body(i: Any, y: Any) -> Any:
            return jnp.where(i == 700, y * 50.0, y) * jnp.where(i == 900, 0.02, 1.0)

        return jnp.sum(jax.lax.fori_loop(0, 2000, body, x))

    done = retape.jax.measure(fun, X, plan=retape.fixed_space(snapshots=9), health=True)
    health = done.health
    assert len(health.norms) <= 512 and health.fault is None
    norms = health.norms[1:]  # nothing has a cotangent before the first step
    assert len(norms) * health.steps_per_norm <= 2002
    assert 701 <= (1 + np.argmin(norms)) * health.steps_per_norm <= 901
    np.testing.assert_allclose([min(norms), max(norms)], [0.02, 1.0])


@pytest.mark.slow
def test_a_source_that_cannot_be_read_names_nothing() -> None:
    scope: dict[str, Any] = {"jnp": jnp}
    exec("def step(y, x): return y + jnp.sqrt(y * 0.0)", scope)
    done = retape.jax.measure(run(scope["step"]), X, plan=PLAN, health=True)
    fault = done.health.fault
    assert (fault.operation, fault.text, fault.variable) == ("sqrt", "", "")
    fine = retape.jax.measure(run(lambda y, x: jnp.sin(y)), X, plan=PLAN, health=True)
    assert fine.health.fault is None


def test_a_factor_that_cannot_be() -> None:
    with pytest.raises(retape.PlanError, match="`growth=1.0` would call every gradi"):
        retape.jax.measure(jnp.sum, X, health=True, growth=1.0)


@pytest.mark.slow
def test_an_equal_program_is_named_by_its_own_line() -> None:
    """What is compiled is found again; where it stands is not that of the other."""

    def one(x: Any) -> Any:
        return jax.lax.fori_loop(0, 9, lambda i, y: jnp.sqrt(y), x)

    def other(x: Any) -> Any:
        return jax.lax.fori_loop(0, 9, lambda i, z: jnp.sqrt(z), x)

    first, second, third = (
        retape.jax.measure(fun, 0.0, health=True).health.fault
        for fun in (one, other, one)
    )
    assert first.text == third.text == one_line("y") and second.text == one_line("z")


def one_line(name: str) -> str:
    return f"return jax.lax.fori_loop(0, 9, lambda i, {name}: jnp.sqrt({name}), x)"


@pytest.mark.slow
@pytest.mark.parametrize("stage", [1, 50])
def test_growth_that_comes_and_goes_within_a_stage(stage: int) -> None:
    """A step multiplies by 1e9, and the one before it by 1e-9."""

    def fun(x: Any) -> Any:
        def body(i: Any, y: Any) -> Any:
            factor = jnp.where(i == 107, 1e9, jnp.where(i == 106, 1e-9, 1.0))
            return y * jnp.where(i == 90, 1e3, factor)

        return jnp.sum(jax.lax.fori_loop(0, 200, body, x))

    plan = retape.fixed_space(snapshots=5, stage=stage)
    health = retape.jax.measure(fun, X, plan=plan, health=True).health
    assert max(health.norms) >= 0.9e9
    assert (health.fault.kind, health.fault.step) == ("growth", 108)
    high = retape.jax.measure(fun, X, plan=plan, health=True, growth=1e10).health
    assert high.fault is None and max(high.norms) == max(health.norms)


def test_a_cotangent_that_is_not_finite_and_is_dropped() -> None:
    """The gradient is finite: only in one step, and in one variable, it is not."""

    def fun(x: Any) -> Any:
        def body(i: Any, carry: Any) -> Any:
            y, z = carry["y"], carry["z"]
            z = jnp.where(i == 55, jax.lax.stop_gradient(z), z)
            root = jnp.sqrt(jnp.where(i == 56, z * 0.0, 1.0))
            return {"y": y + 0.0 * root, "z": z}

        return jnp.sum(jax.lax.fori_loop(0, 80, body, {"y": x, "z": x})["y"])

    plan = retape.fixed_space(snapshots=5, stage=20)
    done = retape.jax.measure(fun, X, plan=plan, health=True)
    assert np.all(np.isfinite(done.gradient))
    fault = done.health.fault
    assert (fault.kind, fault.step, fault.operation) == ("reverse", 57, "sqrt")


@pytest.mark.slow
def test_infinity_that_marks_rows_not_yet_written() -> None:
    """As solvers save: the value is finite, and the fault is on the way back."""

    def fun(x: Any) -> Any:
        def body(i: Any, carry: Any) -> Any:
            y, rows, best = carry
            y = 0.9 * y + jnp.sqrt(jnp.where(i == 20, 0.0 * y, 1.0))
            best = jnp.minimum(best, jnp.where(i > 30, jnp.sum(y), jnp.inf))
            return y, rows.at[i].set(y), best

        _, rows, best = jax.lax.fori_loop(
            0, 40, body, (x, jnp.full((40, 3), jnp.inf), jnp.inf)
        )
        return jnp.sum(rows[25:]) + best

    done = retape.jax.measure(fun, X, plan=PLAN, health=True)
    assert np.isfinite(done.value)
    fault = done.health.fault
    assert (fault.kind, fault.step, fault.operation) == ("reverse", 21, "sqrt")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["complex64"])
def test_other_types(kind: str) -> None:
    def fun(x: Any) -> Any:
        def body(i: Any, y: Any) -> Any:
            return y * jnp.where(i == 30, 1e9, 1.0).astype(kind)

        last = jax.lax.fori_loop(0, 60, body, x.astype(kind))
        return jnp.sum(jnp.abs(last) ** 2).astype(np.float32)

    done = retape.jax.measure(fun, X.astype(np.float32), plan=PLAN, health=True)
    assert (done.health.fault.kind, done.health.fault.step) == ("growth", 31)


def test_a_value_that_is_not_finite_though_its_gradient_is() -> None:
    def fun(x: Any, ends: Any) -> Any:
        y = jax.lax.fori_loop(0, 20, lambda i, y: 0.9 * y, x)
        return jnp.sum(y) + jnp.log(jax.lax.stop_gradient(y[0]) * ends)

    for x, ends, step, operation in (
        (X, 0.0, 21, "log"),
        (X * np.nan, 1.0, 0, "argument"),
    ):
        done = retape.jax.measure(fun, x, ends, plan=PLAN, health=True)
        assert np.all(np.isfinite(done.gradient)) and not np.isfinite(done.value)
        fault = done.health.fault
        assert (fault.kind, fault.step) == ("forward", step)
        assert fault.operation == operation

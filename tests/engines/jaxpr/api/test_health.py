"""Gradients that go wrong: the step, the line and the operation are named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
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


def looked_at(fun: Any, *args: Any, plan: Any = PLAN, **options: Any) -> Any:
    return retape.jax.measure(fun, *args, plan=plan, health=True, **options)


@dataclass
class Row:
    """A function of three numbers, and what is wrong in it, where."""

    fun: Callable[..., Any]
    kind: str
    step: int
    operation: str
    text: str = ""
    """What stands in the line; a fault on the way back names a part of it."""
    args: tuple[Any, ...] = (X,)
    options: dict[str, Any] = field(default_factory=dict)
    slow: bool = True


ROWS: dict[str, Row] = {}


def row(*facts: Any, **more: Any) -> Any:
    def register(fun: Any) -> Any:
        ROWS[fun.__name__] = Row(fun, *facts, **more)
        return fun

    return register


def run(step: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """A run of which one step is another one."""

    def fun(x: Any) -> Any:
        def body(i: Any, y: Any) -> Any:
            return jax.lax.cond(i == AT, step, lambda y, x: 0.9 * jnp.sin(y), y, x)

        return jnp.sum(jax.lax.fori_loop(0, STEPS, body, x) ** 2)

    return fun


def step_of(kind: str, operation: str, text: str, slow: bool = True) -> Any:
    """That step; what is before the loop is one of its own."""

    def register(step: Any) -> Any:
        name = step.__name__
        ROWS[name] = Row(run(step), kind, AT + 1, operation, text, slow=slow)
        return step

    return register


@step_of("reverse", "sqrt", "jnp.sqrt(jnp.maximum(y - 100.0, 0.0))")
def masked_root(y: Any, x: Any) -> Any:
    return y + jnp.sqrt(jnp.maximum(y - 100.0, 0.0))


@step_of("reverse", "div", "jnp.where(zero == 0, y, y / zero)")
def masked_quotient(y: Any, x: Any) -> Any:
    zero = y - y
    return jnp.where(zero == 0, y, y / zero)


@step_of("reverse", "sqrt", "jnp.linalg.norm(")
def norm_of_zero(y: Any, x: Any) -> Any:
    return y + jnp.linalg.norm(y - jax.lax.stop_gradient(y))


@step_of("reverse", "pow", "(y * 0.0) ** 0.5")
def power_of_zero(y: Any, x: Any) -> Any:
    return y + (y * 0.0) ** 0.5


@jax.custom_jvp
def by_hand(y: Any) -> Any:
    return y


by_hand.defjvp(lambda p, t: (p[0], t[0] / (p[0] - p[0])))


@step_of("reverse", "custom_jvp_call", "return by_hand(y)", slow=False)
def own_rule(y: Any, x: Any) -> Any:
    return by_hand(y)


@step_of("reverse", "sqrt", "jnp.sqrt(y * 0.0)")
def in_a_branch(y: Any, x: Any) -> Any:
    return jax.lax.cond(y[0] > -1, lambda y: y + jnp.sqrt(y * 0.0), jnp.sin, y)


@step_of("reverse", "sqrt", "jnp.sqrt(x * 0.0)")
def only_the_parameter(y: Any, x: Any) -> Any:
    return y + jnp.sqrt(x * 0.0)


@step_of("forward", "log", "return jnp.log(y - 100.0)", slow=False)
def a_value_that_is_not_finite(y: Any, x: Any) -> Any:
    return jnp.log(y - 100.0)


@step_of("growth", "mul", "return jnp.sin(1e9 * y)")
def a_step_that_explodes(y: Any, x: Any) -> Any:
    return jnp.sin(1e9 * y)


def in_a_scan(y: Any, x: Any) -> Any:
    def body(c: Any, x: Any) -> Any:
        return c * x + jnp.where(x == 3.0, jnp.sqrt(c * 0.0), 0.0), c

    return y + jax.lax.scan(body, y[0], jnp.asarray([1.0, 3.0, 2.0]))[0]


@row("reverse", AT + 1, "sqrt", "jnp.sqrt(c * 0.0)")
def a_scan_that_is_a_part_of_a_step(x: Any) -> Any:
    def body(c: Any) -> Any:
        sine = lambda y, x: 0.9 * jnp.sin(y)  # noqa: E731
        return c[0] + 1, jax.lax.cond(c[0] == AT, in_a_scan, sine, c[1], x)

    # Of a length that is not known, so that the scan alone is a part of a step.
    going = lambda c: (c[0] < STEPS) & (c[1][0] < 9.0)  # noqa: E731
    return jnp.sum(jax.lax.while_loop(going, body, (0, x))[1] ** 2)


STAGE_OF_20 = {"plan": retape.fixed_space(snapshots=5, stage=20)}


@row("reverse", 57, "sqrt", options=STAGE_OF_20, slow=False)
def a_cotangent_that_is_dropped(x: Any) -> Any:
    """The gradient is finite: only in one step, and in one variable, it is not."""

    def body(i: Any, carry: Any) -> Any:
        y, z = carry["y"], carry["z"]
        z = jnp.where(i == 55, jax.lax.stop_gradient(z), z)
        root = jnp.sqrt(jnp.where(i == 56, z * 0.0, 1.0))
        return {"y": y + 0.0 * root, "z": z}

    return jnp.sum(jax.lax.fori_loop(0, 80, body, {"y": x, "z": x})["y"])


@row("reverse", 21, "sqrt")
def infinity_that_marks_rows_not_yet_written(x: Any) -> Any:
    """As solvers save: the value is finite, and the fault is on the way back."""

    def body(i: Any, carry: Any) -> Any:
        y, rows, best = carry
        y = 0.9 * y + jnp.sqrt(jnp.where(i == 20, 0.0 * y, 1.0))
        best = jnp.minimum(best, jnp.where(i > 30, jnp.sum(y), jnp.inf))
        return y, rows.at[i].set(y), best

    start = (x, jnp.full((40, 3), jnp.inf), jnp.inf)
    _, rows, best = jax.lax.fori_loop(0, 40, body, start)
    return jnp.sum(rows[25:]) + best


@row("growth", 31, "mul")
def complex_numbers(x: Any) -> Any:
    def body(i: Any, y: Any) -> Any:
        return y * jnp.where(i == 30, 1e9, 1.0).astype("complex64")

    last = jax.lax.fori_loop(0, 60, body, x.astype("complex64"))
    return jnp.sum(jnp.abs(last) ** 2).astype(np.float32)


def logarithm(x: Any, ends: Any) -> Any:
    """Its value is not finite; its gradient is."""
    y = jax.lax.fori_loop(0, 20, lambda i, y: 0.9 * y, x)
    return jnp.sum(y) + jnp.log(jax.lax.stop_gradient(y[0]) * ends)


ROWS["after the loop"] = Row(logarithm, "forward", 21, "log", args=(X, 0.0), slow=False)
ROWS["an argument"] = Row(
    logarithm, "forward", 0, "argument", args=(X * np.nan, 1.0), slow=False
)
UNREAD: dict[str, Any] = {"jnp": jnp}
exec("def step(y, x): return y + jnp.sqrt(y * 0.0)", UNREAD)
ROWS["no source"] = Row(run(UNREAD["step"]), "reverse", AT + 1, "sqrt")
FINITE = {"a_cotangent_that_is_dropped", "after the loop", "an argument"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if ROWS[name].slow else [])
        for name in ROWS
    ],
)
def test_what_goes_wrong_is_named(name: str) -> None:
    row = ROWS[name]
    done = looked_at(row.fun, *row.args, **row.options)
    fault = done.health.fault
    assert (fault.kind, fault.step) == (row.kind, row.step)
    assert fault.operation == row.operation and row.text in fault.text
    assert ("test_health.py:" in fault.line) == (
        name not in ("no source", "an argument")
    )
    # Of what is wrong on the way back alone, nothing is seen on the way there.
    assert np.isfinite(done.value) == (row.kind != "forward")
    if row.kind == "reverse":
        assert np.isfinite(fault.before) and fault.variable in fault.text
        assert bool(fault.variable) == (name != "no source")
    elif row.kind == "growth":
        assert fault.after > 1e6 * fault.before
    finite = name in FINITE or row.kind == "growth"
    assert np.all(np.isfinite(done.gradient)) == finite


# Growth -------------------------------------------------------------------------------


def test_a_loop_of_unknown_length_that_grows_slowly_and_long() -> None:
    """Each step doubles; the factor that is allowed is passed after ten of them."""

    def fun(x: Any) -> Any:
        def body(carry: Any) -> Any:
            y, t = carry
            return jnp.where(t < 30, 2.0 * y, y), t + 1.0

        return jnp.sum(jax.lax.while_loop(lambda c: c[1] < 50.0, body, (x, 0.0))[0])

    fault = looked_at(fun, X, growth=1000.0).health.fault
    # Steps 1 to 30 double; backwards, 2**10 is passed at the tenth of them.
    assert (fault.kind, fault.step) == ("growth", 30 - 9)
    calm = looked_at(fun, X, growth=1e12).health
    assert calm.fault is None and max(calm.norms) >= 2.0**27
    assert str(calm).endswith("fault     none")


def test_norms_stand_for_all_steps_in_a_fixed_number_of_rows() -> None:
    def fun(x: Any) -> Any:
        def body(i: Any, y: Any) -> Any:
            return jnp.where(i == 700, y * 50.0, y) * jnp.where(i == 900, 0.02, 1.0)

        return jnp.sum(jax.lax.fori_loop(0, 2000, body, x))

    health = looked_at(fun, X, plan=retape.fixed_space(snapshots=9)).health
    assert len(health.norms) <= 512 and health.fault is None
    norms = health.norms[1:]  # nothing has a cotangent before the first step
    assert len(norms) * health.steps_per_norm <= 2002
    assert 701 <= (1 + np.argmin(norms)) * health.steps_per_norm <= 901
    np.testing.assert_allclose([min(norms), max(norms)], [0.02, 1.0])


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
    health = looked_at(fun, X, plan=plan).health
    assert max(health.norms) >= 0.9e9
    assert (health.fault.kind, health.fault.step) == ("growth", 108)
    high = looked_at(fun, X, plan=plan, growth=1e10).health
    assert high.fault is None and max(high.norms) == max(health.norms)


@pytest.mark.slow
def test_an_equal_program_is_named_by_its_own_line() -> None:
    """What is compiled is found again; where it stands is not that of the other."""

    def one(x: Any) -> Any:
        return jax.lax.fori_loop(0, 9, lambda i, y: jnp.sqrt(y), x)

    def other(x: Any) -> Any:
        return jax.lax.fori_loop(0, 9, lambda i, z: jnp.sqrt(z), x)

    found = [looked_at(f, 0.0).health.fault.text for f in (one, other, one)]
    line = "return jax.lax.fori_loop(0, 9, lambda i, {0}: jnp.sqrt({0}), x)"
    assert found == [line.format(name) for name in "yzy"]

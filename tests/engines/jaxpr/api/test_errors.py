"""Bad input: every message says what was passed, why it cannot be, and what to do."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import retape
import retape.jax


def climb(x: Any) -> Any:
    return jax.lax.while_loop(lambda v: abs(v) < 5, lambda v: v * 1.5 + jnp.sin(x), x)


def says(*parts: str) -> str:
    """A pattern: these texts, in order."""
    return ".*".join(map(re.escape, parts))


# Functions and arguments ------------------------------------------------------------


def test_a_real_argument_of_a_holomorphic_function() -> None:
    expected = says("`args[0]` is of type `float64`", "`holomorphic=True`", "Convert")
    with pytest.raises(retape.GradientTypeError, match=expected):
        retape.jax.grad(climb, holomorphic=True)(1.0)


@pytest.mark.parametrize("aux", ["text", object(), {"a": [1.0, "text"]}])
def test_what_is_returned_beside_the_value_and_is_no_array(aux: Any) -> None:
    expected = says("`aux", "is of type `", "arrays and numbers", "keep the rest")
    with pytest.raises(retape.GradientTypeError, match=expected):
        retape.jax.grad(lambda x: (climb(x), aux), has_aux=True)(1.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda fun: retape.jax.grad(fun),
        lambda fun: retape.jax.value_and_grad(fun),
        lambda fun: retape.jax.checkpointed(fun),
        lambda fun: retape.jax.vjp(fun, 1.0),
        lambda fun: retape.jax.explain(fun, 1.0),
        lambda fun: retape.jax.measure(fun, 1.0),
    ],
)
@pytest.mark.parametrize("fun", [3, None, "climb"])
def test_not_a_function(call: Any, fun: Any) -> None:
    expected = says(f"`fun={fun!r}` is not a function", "Pass the function")
    with pytest.raises(retape.GradientTypeError, match=expected):
        call(fun)


def test_measuring_inside_a_transformation() -> None:
    expected = says("`measure` runs", "inside `jax.jit`", "Call it outside")
    with pytest.raises(retape.UnsupportedError, match=expected):
        jax.jit(lambda x: retape.jax.measure(climb, x).value)(1.0)


@pytest.mark.parametrize("fun", [lambda x: x + 1j, lambda x: x * jnp.ones(2)])
def test_what_we_refuse_jax_refuses(fun: Any) -> None:
    """And with the same builtin, so that `except TypeError` goes on working."""
    for gradient in (jax.grad, retape.jax.grad):
        with pytest.raises(TypeError):
            gradient(fun)(1.0)


# Plans ------------------------------------------------------------------------------


def test_integers_of_numpy_are_integers() -> None:
    plan = retape.fixed_space(snapshots=np.int64(3), stage=np.int32(2))  # pyright: ignore
    assert plan == retape.fixed_space(snapshots=3, stage=2)
    budget = retape.within(np.int64(10**6))  # pyright: ignore
    assert budget == retape.within(10**6)
    got = retape.jax.grad(climb, argnums=np.int64(0), plan=plan)(1.0)  # pyright: ignore
    assert got == retape.jax.grad(climb, plan=budget)(1.0)


@pytest.mark.parametrize("plan", [3, "512 MiB", retape.fixed_space, {"snapshots": 3}])
@pytest.mark.parametrize(
    "call",
    [
        lambda plan: retape.jax.grad(climb, plan=plan),
        lambda plan: retape.jax.value_and_grad(climb, plan=plan),
        lambda plan: retape.jax.checkpointed(climb, plan=plan),
        lambda plan: retape.jax.vjp(climb, 1.0, plan=plan),
        lambda plan: retape.jax.explain(climb, 1.0, plan=plan),
        lambda plan: retape.jax.measure(climb, 1.0, plan=plan),
    ],
)
def test_not_a_plan(call: Any, plan: Any) -> None:
    said = r"`plan=.* is not a plan\. (Pass one|Write|For a budget of bytes write) "
    with pytest.raises(retape.PlanError, match=said):
        call(plan)


def test_a_budget_below_the_least_names_it_and_the_least_is_enough() -> None:
    def fun(x: Any) -> Any:
        return jnp.sum(jax.lax.while_loop(lambda v: v[0] < 5, lambda v: v * 1.5, x))

    x = jnp.ones(100)
    expected = r"`within\(1000\)` is too little.*take (\d+) bytes.*Pass.*or more"
    with pytest.raises(retape.BudgetError, match=expected) as caught:
        retape.jax.grad(fun, plan=retape.within("1 kB"))(x)
    found = re.search(r"take (\d+) bytes", str(caught.value))
    assert found
    least = int(found[1])
    got = retape.jax.grad(fun, plan=retape.within(least))(x)
    np.testing.assert_allclose(got, 1.5**4)
    with pytest.raises(retape.BudgetError, match=f"take {least} bytes"):
        retape.jax.grad(fun, plan=retape.within(least - 1))(x)


# Programs ---------------------------------------------------------------------------


def test_an_operation_without_a_derivative_is_named() -> None:
    def body(v: Any) -> Any:
        out = jax.ShapeDtypeStruct((), v.dtype)
        return jax.pure_callback(np.sin, out, v) + v

    def fun(x: Any) -> Any:
        return jax.lax.while_loop(lambda v: v < 5, body, x)

    line = body.__code__.co_firstlineno + 2
    expected = says(
        "It is the operation `pure_callback` at",
        f"{os.path.basename(__file__)}:{line}",
        "Give it a derivative with",
        "custom_jvp",
    )
    with pytest.raises(retape.UnsupportedError, match=f"(?s).*{expected}"):
        retape.jax.grad(fun)(1.0)


@pytest.mark.slow
def test_what_leads_only_to_a_test_needs_no_derivative() -> None:
    """As in plain JAX, where the test of a loop is not differentiated."""

    def going(v: Any) -> Any:
        small = lambda v: np.abs(v) < 5  # noqa: E731
        return jax.pure_callback(small, jax.ShapeDtypeStruct((), bool), v)

    def fun(x: Any) -> Any:
        return jax.lax.while_loop(going, lambda v: v * 1.5, x)

    for stage in (1, 2):
        plan = retape.fixed_space(snapshots=2, stage=stage)
        assert retape.jax.grad(fun, plan=plan)(1.0) == 1.5**4


def _climbing(tangent_of_y: bool) -> Any:
    """A `custom_jvp` whose rule carries tangents through an unbounded loop."""

    @jax.custom_jvp
    def fun(x: Any, y: Any) -> Any:
        del y
        return jax.lax.while_loop(lambda c: c < 9.0, lambda c: c * 2.0, x)

    @fun.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        x, dx = primals[0], tangents[0]
        both = lambda c: (c[0] * 2.0, c[1] * 2.0)  # noqa: E731
        z, dz = jax.lax.while_loop(lambda c: c[0] < 9.0, both, (x, dx))
        return z, dz + tangents[1] if tangent_of_y else dz

    return fun


def test_a_rule_that_cannot_be_transposed_and_reads_more_than_its_primal() -> None:
    expected = says(
        "`jax.custom_jvp`", "`while_loop`", "argument 1", "`jax.custom_vjp`"
    )
    with pytest.raises(retape.UnsupportedError, match=f"(?s).*{expected}"):
        retape.jax.grad(_climbing(True), argnums=(0, 1))(1.0, 1.0)
    # One that reads no more: its primal is what is reversed.
    got = retape.jax.grad(_climbing(False), argnums=(0, 1))(1.0, 1.0)
    assert got == (16.0, 0.0)


def test_a_rule_that_jax_cannot_transpose_in_a_program_without_loops() -> None:
    """Its primal has nothing to open, so the rule is what is asked for."""

    @jax.custom_jvp
    def double(x: Any) -> Any:
        return x * 2.0

    @double.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        grow = lambda c: c + tangents[0]  # noqa: E731
        looped = jax.lax.while_loop(lambda c: c < 2.0, grow, 0.0 * tangents[0])
        return double(*primals), looped

    expected = says("no reverse-mode rule", "`jax.custom_vjp`")
    with pytest.raises(retape.UnsupportedError, match=f"(?s).*{expected}"):
        retape.jax.grad(double)(1.0)


def test_the_users_own_errors_pass_through() -> None:
    def fun(x: Any) -> Any:
        raise KeyError(f"mine: {x.shape}")

    with pytest.raises(KeyError, match="mine"):
        retape.jax.grad(fun)(1.0)


# Interruption -----------------------------------------------------------------------

ENDLESS = """
    import signal
    import jax, retape, retape.jax
    # A shell may have started us with interrupts ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    endless = lambda x: jax.lax.while_loop(lambda v: v > -1.0, lambda v: v * x, x)
    gradient = retape.jax.grad(endless, plan=retape.fixed_space(snapshots=3))
    print("running", flush=True)
    interrupted = None
    while not isinstance(interrupted, retape.RetapeError):
        try:
            jax.block_until_ready(gradient(1.0))
        except KeyboardInterrupt as error:  # perhaps while it is still compiled
            interrupted = error
    print(isinstance(interrupted, retape.RetapeError), interrupted, flush=True)
"""


def interrupted_until_it_ends(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a process prints that is sent Ctrl-C again and again, however slow it is."""
    for _ in range(60):
        try:
            return process.communicate(timeout=3)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
    raise AssertionError("three minutes of Ctrl-C did not end the run")


@pytest.mark.slow
def test_control_c_in_a_loop_that_never_ends() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(ENDLESS)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "running\n"
            out, err = interrupted_until_it_ends(process)
        finally:
            process.kill()
    # Not asserted: the exit status, since ending Python under a running program can
    # abort it.
    assert re.match(says("True interrupted after", "bound its trip count."), out), err


def looking(params: Any, scale: Any) -> Any:
    """Look at the value of a traced array."""
    return params["w"].sum() if params["w"].sum() > 0 else scale.sum()


@pytest.mark.parametrize(
    "gradient",
    [
        retape.jax.grad(looking),
        jax.jit(retape.jax.grad(looking)),
        jax.grad(retape.jax.checkpointed(looking)),
        jax.grad(retape.jax.checkpoint(looking)),
    ],
    ids=["grad", "jit", "checkpointed", "checkpoint"],
)
def test_an_error_names_the_user_s_function_and_argument(gradient: Any) -> None:
    said = r"function looking at .*test_errors.py(.|\n)*argument params\['w'\]"
    with pytest.raises(jax.errors.TracerBoolConversionError, match=said):
        gradient({"w": jnp.ones(3)}, jnp.ones(3))


@pytest.mark.parametrize("place", range(4))
def test_a_plan_in_the_place_of_another_argument_is_named(place: int) -> None:
    options = [0, False, False, False]
    options[place] = retape.logarithmic()
    with pytest.raises(retape.PlanError, match="is a plan, which is passed by name"):
        retape.jax.grad(jnp.sin, *options)
    with pytest.raises(retape.PlanError, match="`primals.1.=.*is a plan"):
        retape.jax.vjp(jnp.sin, 1.0, retape.logarithmic())
    with pytest.raises(retape.PlanError, match="`fun=.*is a plan"):
        retape.jax.checkpointed(retape.logarithmic())


def test_a_float_of_bytes_is_rounded_down() -> None:
    assert retape.within(8e9) == retape.within(8e9 + 0.4) == retape.within(8 * 10**9)

"""Every form of program against three oracles, and some under every plan."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import retape
import retape.jax
from tests.engines.jaxpr.support.forms import FORMS
from tests.engines.jaxpr.support.programs import (
    Form,
    Unrolled,
    assert_close,
    finite_difference,
    forward_gradient,
)

BY_NAME = {f.name: f for f in FORMS}
FEW = retape.fixed_space(snapshots=2, stage=2)


# The gradients of all forms are looked at by `judges/jax/test_forms.py`, where a short
# scan is a step of its own. Opened, as a long one would be, it is one more loop: these
# have none to open. On each change every third one of the others is opened.
WITHOUT_A_SCAN = {
    "halt_on_data", "zero_trips", "one_trip", "while_in_while", "three_deep",
    "fori_dynamic", "fori_of_negative_length", "unused_carry",
    "integers_and_booleans", "value_kept_past_a_loop", "rows_written_by_hand",
    "conds_in_a_cond", "jit_inside", "remat_inside", "remat_with_a_loop_inside",
    "vmap_of_a_data_dependent_loop", "closed_over_arrays", "typed_keys",
    "typed_keys_of_another_kind", "raw_keys", "nothing_in_an_array",
    "through_complex_numbers", "no_derivative_through", "identity",
    "ignores_its_argument", "a_python_number", "loop_beside_the_result",
}  # fmt: skip
OPENED = [form for form in FORMS if form.name not in WITHOUT_A_SCAN]


@pytest.mark.slow(
    "linear_algebra",
    "overwritten_carry",
    "rows_of_rows",
    "scan_of_13",
    "scan_of_13_reversed",
    "scan_of_2",
    "switch_-3",
    "switch_0",
    "switch_1",
    "switch_9",
    "vmap_inside",
    "switch_2",
)
@pytest.mark.parametrize(
    "form",
    [
        pytest.param(form, marks=[pytest.mark.slow] * bool(number % 3))
        for number, form in enumerate(OPENED)
    ],
    ids=lambda f: f.name,
)
def test_gradient(form: Form, opened: None) -> None:
    del opened
    args = form.arguments()
    fun = form.with_loops(jax.lax)
    value, gradient = retape.jax.value_and_grad(fun, plan=FEW)(*args)
    assert_close(value, jnp.asarray(fun(*args)))
    assert_close(gradient, forward_gradient(fun, *args))
    if form.unrolls:
        assert_close(gradient, jax.grad(form.with_loops(Unrolled))(*args))


def test_gradient_against_finite_differences(opened: None) -> None:
    del opened
    form = BY_NAME["while_in_while"]
    fun = form.with_loops(jax.lax)
    (x,) = form.arguments()
    assert_close(retape.jax.grad(fun)(x), finite_difference(fun, x), 1e-6)


# The default, a little memory and bisection are in the judges' tables, for every form.
PLANS = {
    "a snapshot": retape.fixed_space(snapshots=1, stage=1),
    "long stages": retape.fixed_space(snapshots=7, stage=5),
    "within 12 kB": retape.within("12 kB"),
    "treeverse": retape.fixed_space(snapshots=3, stage=1, split="treeverse"),
}
KNOWN = {
    "a snapshot": retape.fixed_space(snapshots=1, stage=5),
    "stages of a step": retape.fixed_space(snapshots=3, stage=1),
    "within 1 MiB": retape.within("1 MiB"),
    "fixed time": retape.fixed_time(sweeps=2),
    "segments": retape.segments(),
}


def _assert_same_under(form: Form, plan: Any) -> None:
    fun = form.with_loops(jax.lax)
    (x,) = form.arguments()
    both = jax.jit(retape.jax.value_and_grad(fun, plan=plan))
    value, gradient = both(x)
    assert_close(value, fun(x))
    assert_close(gradient, _expected(form.name))


@functools.cache
def _expected(name: str) -> Any:
    form = BY_NAME[name]
    return np.asarray(jax.grad(form.with_loops(Unrolled))(*form.arguments()))


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS.keys())
def test_every_plan_on_a_run_of_unknown_length(plan: Any, opened: None) -> None:
    del opened
    _assert_same_under(BY_NAME["while_in_while"], plan)


@pytest.mark.parametrize("plan", KNOWN.values(), ids=KNOWN.keys())
def test_every_plan_on_a_run_of_known_length(plan: Any, opened: None) -> None:
    del opened
    _assert_same_under(BY_NAME["ys_feed_a_later_loop"], plan)


# Types -----------------------------------------------------------------------------


def climb(x: Any) -> Any:
    return jax.lax.while_loop(lambda v: abs(v) < 5, lambda v: v * 1.5 + jnp.sin(x), x)


@pytest.mark.slow("bfloat16-0.02")
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(jnp.float32, 1e-5), (jnp.bfloat16, 2e-2), (jnp.float16, 2e-3)],
)
def test_short_floats(dtype: Any, tolerance: float) -> None:
    x = jnp.asarray(0.7, dtype)
    got = retape.jax.grad(climb, plan=FEW)(x)
    assert got.dtype == dtype
    want = jax.jvp(climb, (x,), (jnp.ones((), dtype),))[1]
    assert_close(got, want, tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [jnp.complex64, jnp.complex128])
def test_holomorphic(dtype: Any) -> None:
    z = jnp.asarray(0.7 + 0.2j, dtype)
    got = retape.jax.grad(climb, holomorphic=True, plan=FEW)(z)
    assert got.dtype == dtype
    want = jax.jvp(climb, (z,), (jnp.ones((), dtype),))[1]
    assert_close(got, want, 1e-5 if dtype == jnp.complex64 else 1e-12)


def test_vjp_by_a_complex_number() -> None:
    """The convention of the cotangent is JAX's own."""

    def rounds(loops: Any, z: Any) -> Any:
        out = loops.fori_loop(0, 4, lambda i, v: v * v * 0.5 + jnp.conj(z), z)
        return jnp.abs(out)

    z = jnp.asarray(0.3 + 0.4j)
    _, pull = retape.jax.vjp(lambda z: rounds(jax.lax, z), z, plan=FEW)
    _, want = jax.vjp(lambda z: rounds(Unrolled, z), z)
    assert_close(pull(1.0), want(1.0))


@pytest.mark.slow
def test_gradient_by_a_complex_number_of_what_is_not_holomorphic() -> None:
    """As `jax.grad`: a number g with df = Re(g dz), whatever the function is."""

    def length(z: Any) -> Any:
        turn = lambda v: v * v * 0.5 + jnp.conj(z) + jnp.real(v)  # noqa: E731
        return jnp.abs(jax.lax.while_loop(lambda v: jnp.abs(v) < 5, turn, z))

    z, small = jnp.asarray(0.3 + 0.4j), 1e-6
    value, got = retape.jax.value_and_grad(length, plan=FEW)(z)
    assert_close(value, length(z))
    for direction in (1, 1j, 0.6 - 0.8j):
        ahead, behind = length(z + small * direction), length(z - small * direction)
        assert_close(jnp.real(got * direction), (ahead - behind) / (2 * small), 1e-7)
    assert_close(jax.grad(lambda z: jnp.abs(jnp.conj(z) * z))(z), 2 * jnp.conj(z))


@pytest.mark.parametrize("wide", [False, True])
def test_precision_on_and_off(wide: bool) -> None:
    with jax.enable_x64(wide):
        x = jnp.asarray(0.7)
        value, got = retape.jax.value_and_grad(climb, plan=FEW)(x)
        assert value.dtype == got.dtype == (jnp.float64 if wide else jnp.float32)
        assert_close(got, jax.jvp(climb, (x,), (jnp.ones_like(x),))[1], 1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"plan": FEW},
        {"plan": retape.fixed_space(snapshots=3, split="bisection")},
        {"plan": retape.within("1 MB")},
        {"plan": FEW, "store": retape.MemoryStore()},
    ],
    ids=["few", "counted first", "within", "store"],
)
def test_the_strictest_modes_of_jax(options: dict[str, Any]) -> None:
    """The user's code keeps to them, and what we add is none of the user's."""
    x = jnp.asarray(0.7)
    want = jax.jvp(climb, (x,), (jnp.ones_like(x),))[1]
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        assert_close(retape.jax.grad(climb, **options)(x), want)
        with pytest.raises(ValueError, match="promotion"):
            retape.jax.grad(lambda x: climb(x) + jnp.ones((), bool), **options)(x)


def test_integers_stay_narrow_where_wide_ones_are_off() -> None:
    """The sweep counts in 64 bits; the user's own integers must not notice."""
    with jax.enable_x64(False):

        def body(c: Any) -> Any:
            assert c[1].dtype == jnp.int32
            return c[0] * 1.1, c[1] + 1

        def fun(x: Any) -> Any:
            y, n = jax.lax.while_loop(lambda c: c[1] < 9, body, (x, 0))
            return y, n

        (_, n), got = retape.jax.value_and_grad(fun, has_aux=True, plan=FEW)(1.0)
        assert n.dtype == jnp.int32
        assert n == 9
        assert_close(got, np.float32(1.1**9), 1e-5)


# The calls' own options ----------------------------------------------------------


def three(a: Any, b: Any, c: Any) -> Any:
    return jax.lax.while_loop(lambda v: v < 5.0, lambda v: v * 1.5 + b * c, a)


@pytest.mark.parametrize("argnums", [0, 1, (2, 0), (-1, 1), [0, 1, 2], (1,)])
def test_argnums(argnums: Any) -> None:
    args = tuple(map(jnp.asarray, (0.7, 0.2, -0.3)))
    got = retape.jax.grad(three, argnums, plan=FEW)(*args)
    want = jax.jacfwd(three, argnums)(*args)
    assert type(got) is type(want)
    assert_close(got, want)


@pytest.mark.slow
def test_trees_as_arguments() -> None:
    def fun(p: Any, n: Any, *, scale: Any) -> Any:
        return jax.lax.fori_loop(
            0, n, lambda i, c: c * p["a"] + p["b"][0] * scale, jnp.asarray(1.0)
        )

    p = {"a": jnp.asarray(0.7), "b": (jnp.asarray(0.2), None)}
    got = retape.jax.grad(fun, plan=FEW)(p, 3, scale=2.0)
    assert_close(got, jax.jacfwd(lambda p: fun(p, 3, scale=2.0))(p))


def test_has_aux() -> None:
    def fun(x: Any) -> Any:
        y = climb(x)
        return y, {"n": jnp.arange(3), "y": y * 2, "text": None}

    x = jnp.asarray(0.7)
    (value, aux), gradient = retape.jax.value_and_grad(fun, has_aux=True, plan=FEW)(x)
    assert_close((value, aux), fun(x))
    again, aux2 = retape.jax.grad(fun, has_aux=True, plan=FEW)(x)
    assert_close((again, aux2), (gradient, aux))
    assert_close(gradient, jax.jvp(climb, (x,), (1.0,))[1])


@pytest.mark.slow
@pytest.mark.parametrize("way", ["grad", "jvp", "vmap of grad", "itself"])
def test_aux_has_a_derivative_for_who_differentiates_it(way: str) -> None:
    def fun(x: Any) -> Any:
        return climb(x), (x**3 * climb(x), jnp.arange(2), 1.0)

    def product(tool: Any, x: Any) -> Any:
        """Value, auxiliary output and gradient, each with a derivative of its own."""
        (value, (more, *_)), slope = tool(x)
        return value * more + jnp.sin(slope)

    def plain(x: Any) -> Any:
        return fun(x), jax.jvp(climb, (x,), (1.0,))[1]

    ours = functools.partial(
        product, retape.jax.value_and_grad(fun, has_aux=True, plan=FEW)
    )
    want = jax.jacfwd(functools.partial(product, plain))
    x = jnp.asarray(0.7)
    if way == "grad":
        assert_close(retape.jax.grad(ours, plan=FEW)(x), want(x))
    elif way == "jvp":
        assert_close(jax.jvp(ours, (x,), (jnp.ones(()),))[1], want(x))
    elif way == "itself":
        assert_close(jax.jit(jax.grad(ours))(x), want(x))
    else:
        xs = jnp.asarray([0.7, 0.8])
        assert_close(jax.vmap(jax.grad(ours))(xs), jnp.stack([want(x) for x in xs]))


@pytest.mark.parametrize("outer", [jax.grad, jax.jacfwd, retape.jax.grad])
def test_aux_beside_a_value_that_does_not_move(outer: Any) -> None:
    """There is no sweep; what is returned beside the value has its derivative."""

    def fun(x: Any) -> Any:
        return jnp.floor(x), (x**3, x, jnp.arange(2), 1.0)

    def product(tool: Any, x: Any) -> Any:
        _, (cube, same, *_) = tool(x)
        return cube * same

    ours = functools.partial(product, retape.jax.grad(fun, has_aux=True, plan=FEW))
    x = jnp.asarray(0.7)
    assert_close(ours(x), x**4)
    assert_close(outer(ours)(x), 4 * x**3)
    inside = jax.jit(outer(lambda x: jax.lax.fori_loop(0, 2, lambda _, c: ours(c), x)))
    assert_close(inside(x), 16 * x**15)


def test_stacked_outputs_as_aux(opened: None) -> None:
    """Rows that the sweep writes again and again come back whole."""
    del opened

    def fun(x: Any) -> Any:
        return jax.lax.scan(lambda c, i: (jnp.sin(c), (c * i, i)), x, jnp.arange(7))

    x = jnp.asarray(0.7)
    (value, aux), _ = retape.jax.value_and_grad(fun, has_aux=True, plan=FEW)(x)
    assert_close((value, aux), fun(x))


def test_integer_arguments() -> None:
    def fun(x: Any, n: Any) -> Any:
        return jax.lax.fori_loop(0, n, lambda i, c: c * x, x)

    by_x, by_n = retape.jax.grad(fun, (0, 1), allow_int=True, plan=FEW)(0.7, 3)
    assert_close(by_x, jnp.asarray(4 * 0.7**3))
    assert by_n.dtype == jax.dtypes.float0
    rows = retape.jax.grad(lambda n: jnp.sum(n) * 2.0, allow_int=True)(jnp.arange(3))
    assert rows.dtype == jax.dtypes.float0
    assert rows.shape == (3,)


def test_one_trace_per_shape() -> None:
    seen = []

    def fun(x: Any) -> Any:
        seen.append(x)
        return jnp.sum(x * climb(x[0]))

    gradient = retape.jax.grad(fun, plan=FEW)
    for scale in (1.0, 2.0, 3.0):
        gradient(jnp.arange(1.0, 3.0) * scale)
    first = len(seen)
    gradient(jnp.arange(1.0, 4.0))
    assert len(seen) == 2 * first


def test_python_control_flow_on_a_number() -> None:
    """As under `jax.grad`, a static number may be looked at."""

    def fun(x: Any, n: Any) -> Any:
        return climb(x) if n > 2 else x

    gradient = retape.jax.grad(fun, plan=FEW)
    assert_close(gradient(0.7, 1), jnp.asarray(1.0))
    assert_close(gradient(0.7, 3), jax.jvp(climb, (0.7,), (1.0,))[1])


def test_vjp_of_several_outputs() -> None:
    def fun(loops: Any, x: Any, n: Any) -> Any:
        a, b = loops.fori_loop(0, 3, lambda i, c: (c[1] * x, c[0] + 1), (x, x * x))
        return {"a": a, "n": n + 1, "b": (b, x)}

    x, n = jnp.asarray(0.7), jnp.asarray(4)
    out, pull = retape.jax.vjp(functools.partial(fun, jax.lax), x, n, plan=FEW)
    want, want_pull = jax.vjp(functools.partial(fun, Unrolled), x, n)
    assert_close(out, want)
    seeds = {"a": 2.0, "n": np.zeros((), jax.dtypes.float0), "b": (3.0, -1.0)}
    assert_close(pull(seeds)[0], want_pull(seeds)[0])


# Custom rules ---------------------------------------------------------------------


@jax.custom_jvp
def unread(x: Any, y: Any) -> Any:
    """A function that ignores `y`; its rule does not."""
    del y
    return 2.0 * x


@unread.defjvp
def _(primals: Any, tangents: Any) -> Any:
    x, y = primals
    dx, dy = tangents
    return unread(x, y), 2.0 * dx + 3.0 * x * dy


@pytest.mark.parametrize("argnums", [0, 1, (0, 1)])
def test_a_custom_jvp_rule_decides_what_carries_a_derivative(argnums: Any) -> None:
    """By its body alone the derivative by `y` would be zero."""

    def fun(x: Any, y: Any) -> Any:
        body = lambda c: (unread(jnp.sin(c[0]), y) * 0.5, c[1] + 1)  # noqa: E731
        return jax.lax.while_loop(lambda c: c[1] < 5, body, (x, 0))[0]

    got = retape.jax.grad(fun, argnums, plan=FEW)(0.7, 0.4)
    assert_close(got, jax.jacfwd(fun, argnums)(0.7, 0.4))
    assert np.all(np.asarray(got) != 0.0)


def test_a_custom_jvp_rule_decides_in_scans_and_composed() -> None:
    def fun(y: Any) -> Any:
        rows = lambda c, _: (jnp.sin(c) * 1.1, unread(0.3, y + c))  # noqa: E731
        return jnp.sum(jax.lax.scan(rows, 0.5, None, length=20)[1])

    expected = jax.grad(fun)(0.4)
    assert_close(expected, jnp.asarray(18.0))
    inside = retape.jax.checkpointed(fun)
    assert_close(retape.jax.grad(fun, plan=FEW)(0.4), expected)
    assert_close(jax.grad(inside)(0.4), expected)
    assert_close(jax.jvp(inside, (0.4,), (1.0,))[1], expected)


def test_custom_jvp_with_a_loop_inside_keeps_its_rule(opened: None) -> None:
    """An implicit derivative by hand: the rule has no loop, so neither has reverse."""
    del opened

    @jax.custom_jvp
    def root(x: Any) -> Any:
        return climb(x)

    @root.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        return root(*primals), tangents[0] * 3.0

    got = retape.jax.grad(lambda x: root(x) ** 2, plan=FEW)(0.7)
    assert_close(got, jax.grad(lambda x: root(x) ** 2)(0.7))

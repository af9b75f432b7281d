"""A call of ours, asked as JAX's own is asked, gives what JAX's own gives.

Each row is written once and asked of both. JAX's loops are Python's own, straight-line
code to it; ours are of a length that cannot be proved.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import retape
import retape.jax
from tests.engines.jaxpr.support.programs import assert_close

Function = Callable[..., Any]
FEW = retape.fixed_space(snapshots=2, stage=2)


def ended(step: Function, x: Any, steps: Any = 5) -> Any:
    going = lambda c: (c[0] < steps) & (jnp.max(jnp.abs(c[1])) < 1e4)  # noqa: E731
    return lax.while_loop(going, lambda c: (c[0] + 1, step(c[1])), (0, x))[1]


def straight(step: Function, x: Any, steps: Any = 5) -> Any:
    for _ in range(int(steps)):
        x = step(x)
    return x


def asked(**options: Any) -> Any:
    """What is called, of `retape.jax` with these options."""
    given = {
        name: functools.partial(getattr(retape.jax, name), **options)
        for name in ("grad", "value_and_grad", "vjp")
    }
    marked = functools.partial(retape.jax.checkpointed, plan=FEW)
    return SimpleNamespace(**given, marked=marked, loop=ended, measured=measured)


def measured(fun: Function, x: Any) -> Any:
    """By a sweep that is watched: what is found is a value and a gradient, too."""
    watched = retape.jax.measure(fun, x, plan=FEW, health=True)
    assert watched.health.fault is None
    return watched.value, watched.gradient


JAXS = SimpleNamespace(
    grad=jax.grad,
    value_and_grad=jax.value_and_grad,
    vjp=jax.vjp,
    marked=lambda f: f,
    loop=straight,
    measured=lambda fun, x: jax.value_and_grad(fun)(x),
)
ROWS: list[Any] = []


TOLERANCES = {"bfloat16": 2e-2, "float16": 2e-3, "complex64": 1e-5, "complex128": 1e-12}


def row(*given: Any, slow: bool = False, tolerance: float = 1e-9) -> Any:
    """Register what is asked; once, or once with each thing that is given."""

    def register(ask: Function) -> Function:
        for each in given or [None]:
            what = ask if not given else functools.partial(ask, each=each)
            title = ask.__name__ if not given else f"{ask.__name__}: {each}"
            marks = [pytest.mark.slow] if slow else []
            within = TOLERANCES.get(str(each), tolerance)
            ROWS.append(pytest.param(what, within, id=title, marks=marks))
        return ask

    return register


def climb(ask: Any, x: Any) -> Any:
    return ask.loop(lambda v: v * 1.5 + jnp.sin(x), x)


# Types -----------------------------------------------------------------------------


@row("bfloat16", "float16")
def a_short_float(ask: Any, each: str) -> Any:
    return ask.value_and_grad(lambda x: climb(ask, x))(jnp.asarray(0.7, each))


@row("complex64", "complex128", slow=True)
def holomorphic(ask: Any, each: str) -> Any:
    z = jnp.asarray(0.7 + 0.2j, each)
    return ask.grad(lambda z: climb(ask, z), holomorphic=True)(z)


def turned(ask: Any, z: Any) -> Any:
    """Not holomorphic; the convention of the cotangent is JAX's own."""
    return jnp.abs(ask.loop(lambda v: v * v * 0.5 + jnp.conj(z) + jnp.real(v), z, 3))


@row()
def by_a_complex_number(ask: Any) -> Any:
    z = jnp.asarray(0.3 + 0.4j)
    value, pull = ask.vjp(lambda z: turned(ask, z), z)
    return value, pull(jnp.ones_like(value)), ask.grad(lambda z: turned(ask, z))(z)


@row(False, True, tolerance=1e-5)
def where_numbers_are_wide(ask: Any, each: bool) -> Any:
    """The sweep counts in 64 bits; the user's own integers must not notice."""

    def body(c: Any) -> Any:
        assert c[1].dtype == (jnp.int64 if each else jnp.int32)
        return c[0] * 1.1 + jnp.sin(c[0]), c[1] + 1

    def counted(x: Any) -> Any:
        if ask is JAXS:
            return straight(body, (x, jnp.asarray(0)), 9)
        return lax.while_loop(lambda c: c[1] < 9, body, (x, 0))

    with jax.enable_x64(each):
        return ask.value_and_grad(counted, has_aux=True)(jnp.asarray(0.7))


# Arguments and results ----------------------------------------------------------------


@row((2, 0), (-1, 1), [0, 1, 2], (1,), np.int64(1))
def argnums(ask: Any, each: Any) -> Any:
    def three(a: Any, b: Any, c: Any) -> Any:
        return ask.loop(lambda v: v * 1.5 + b * c, a)

    return ask.grad(three, each)(*map(jnp.asarray, (0.7, 0.2, -0.3)))


NOT_BY_IT: dict[str, Function] = {
    "another number": lambda ask, x: jnp.sum(jnp.ones(4)),
    "what stands still": lambda ask, x: jax.lax.stop_gradient(x).sum(),
    "a loop of its own": lambda ask, x: ask.loop(lambda v: v * 2.0, jnp.asarray(1.0)),
    "times zero": lambda ask, x: 0.0 * x.sum(),
}


@row(*NOT_BY_IT)
def a_value_that_does_not_depend_on_it(ask: Any, each: str) -> Any:
    """Of `measure`, too, which ended in an assertion of ours."""

    def fun(x: Any) -> Any:
        return NOT_BY_IT[each](ask, x)

    x = jnp.arange(3.0)
    value, pull = ask.vjp(fun, x)
    return ask.value_and_grad(fun)(x), pull(value), ask.measured(fun, x)


@row(slow=True)
def trees(ask: Any) -> Any:
    def fun(p: Any, n: Any, *, scale: Any) -> Any:
        return ask.loop(lambda c: c * p["a"] + p["b"][0] * scale, jnp.asarray(1.0), n)

    p = {"a": jnp.asarray(0.7), "b": (jnp.asarray(0.2), None)}
    return ask.grad(fun)(p, 3, scale=2.0)


@row("grad", "value_and_grad")
def what_is_returned_beside(ask: Any, each: str) -> Any:
    def fun(x: Any) -> Any:
        y = climb(ask, x)
        return y, {"n": jnp.arange(3), "y": y * 2, "text": None}

    return getattr(ask, each)(fun, has_aux=True)(jnp.asarray(0.7))


@row()
def integers(ask: Any) -> Any:
    def fun(x: Any, n: Any) -> Any:
        return ask.loop(lambda c: c * x, x, n)

    rows = ask.grad(lambda n: jnp.sum(n) * 2.0, allow_int=True)(jnp.arange(3))
    return ask.grad(fun, (0, 1), allow_int=True)(0.7, 3), rows


@row(1, 3)
def a_number_that_python_looks_at(ask: Any, each: int) -> Any:
    fun = lambda x, n: climb(ask, x) if n > 2 else x  # noqa: E731
    return ask.grad(fun)(0.7, each)


@row()
def several_results(ask: Any) -> Any:
    def fun(x: Any, n: Any) -> Any:
        a, b = ask.loop(lambda c: c * x + c[::-1], jnp.stack([x, x * x]))
        return {"a": a, "n": n + 1, "b": (b, x)}

    out, pull = ask.vjp(fun, jnp.asarray(0.7), jnp.asarray(4))
    seeds = {"a": 2.0, "n": np.zeros((), jax.dtypes.float0), "b": (3.0, -1.0)}
    return out, pull(seeds)


OUTER: dict[str, Callable[[Any, Function], Function]] = {
    "itself": lambda ask, f: f,
    "jit of grad": lambda ask, f: jax.jit(jax.grad(f)),
    "jacfwd": lambda ask, f: jax.jacfwd(f),
    "grad of ours": lambda ask, f: ask.grad(f),
    "vmap of grad": lambda ask, f: (
        lambda x: jax.vmap(jax.grad(f))(jnp.stack([x, x + 0.1]))
    ),
    "in a loop": lambda ask, f: jax.jit(
        jax.grad(lambda x: lax.fori_loop(0, 2, lambda _, c: f(c), x))
    ),
}


@row("jit of grad", "jacfwd", "grad of ours", "vmap of grad", slow=True)
def derivatives_of_what_is_beside(ask: Any, each: str) -> Any:
    """Value, what is beside it and gradient, each with a derivative of its own."""

    def fun(x: Any) -> Any:
        y = climb(ask, 0.3 * x)
        return y, (x**3 * y, jnp.arange(2), 1.0)

    def product(x: Any) -> Any:
        (value, (more, *_)), slope = ask.value_and_grad(fun, has_aux=True)(x)
        return jnp.sin(value * more) + jnp.sin(slope)

    return OUTER[each](ask, product)(jnp.asarray(0.7))


@row("itself", "jacfwd", "grad of ours", "in a loop")
def what_is_beside_a_value_that_stands(ask: Any, each: str) -> Any:
    """There is no sweep; what is returned beside the value has its derivative."""

    def fun(x: Any) -> Any:
        return jnp.floor(x), (x**3, x, jnp.arange(2), 1.0)

    def product(x: Any) -> Any:
        _, (cube, same, *_) = ask.grad(fun, has_aux=True)(x)
        return cube * same

    return OUTER[each](ask, product)(jnp.asarray(0.7))


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


@row(0, 1, (0, 1))
def a_rule_says_what_moves(ask: Any, each: Any) -> Any:
    """By its body alone the derivative by `y` would be zero."""
    fun = lambda x, y: ask.loop(lambda c: unread(jnp.sin(c), y) * 0.5, x)  # noqa: E731
    return ask.grad(fun, each)(0.7, 0.4)


@row()
def a_rule_in_a_scan_and_composed(ask: Any) -> Any:
    def fun(y: Any) -> Any:
        rows = lambda c, _: (jnp.sin(c) * 1.1, unread(0.3, y + c))  # noqa: E731
        return jnp.sum(lax.scan(rows, 0.5, None, length=20)[1])

    inside = ask.marked(fun)
    along = jax.jvp(inside, (0.4,), (1.0,))
    return ask.grad(fun)(0.4), jax.grad(inside)(0.4), along


@jax.custom_jvp
def root(x: Any) -> Any:
    return climb(asked(), x)


@root.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return root(*primals), tangents[0] * 3.0


@row()
def a_rule_around_a_loop(ask: Any) -> Any:
    """An implicit derivative by hand: the rule has no loop, so neither has reverse."""
    return ask.grad(lambda x: root(x) ** 2)(0.7)


# ------------------------------------------------------------------------------------


def assert_alike(got: Any, want: Any, tolerance: float) -> None:
    assert jax.tree.structure(got) == jax.tree.structure(want)
    pairs = zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True)
    for ours, theirs in pairs:
        assert np.asarray(ours).dtype == np.asarray(theirs).dtype
        assert np.shape(ours) == np.shape(theirs)
        if np.asarray(theirs).dtype != jax.dtypes.float0:
            assert_close(ours, theirs, tolerance)


@pytest.mark.slow(
    "a_short_float: float16", "a_value_that_does_not_depend_on_it: another number"
)
@pytest.mark.parametrize(("what", "tolerance"), ROWS)
def test_ours_gives_what_that_of_jax_gives(what: Function, tolerance: float) -> None:
    assert_alike(what(asked(plan=FEW)), what(JAXS), tolerance)


STRICT: dict[str, dict[str, Any]] = {
    "few": {"plan": FEW},
    "counted first": {"plan": retape.fixed_space(snapshots=3, split="bisection")},
    "within": {"plan": retape.within("1 MB")},
    "store": {"plan": FEW, "store": retape.MemoryStore()},
}


@pytest.mark.parametrize("name", STRICT)
def test_the_strictest_modes_of_jax(name: str) -> None:
    """The user's code keeps to them, and what we add is none of the user's."""
    ask = asked(**STRICT[name])
    x = jnp.asarray(0.7)
    want = JAXS.grad(lambda x: climb(JAXS, x))(x)
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        assert_close(ask.grad(lambda x: climb(ask, x))(x), want)
        with pytest.raises(ValueError, match="promotion"):
            ask.grad(lambda x: climb(ask, x) + jnp.ones((), bool))(x)

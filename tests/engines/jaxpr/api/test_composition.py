"""A checkpointed function under every transformation, and under pairs of them.

`halting` runs a loop that plain reverse mode refuses; `counted` is the same function in
a form that JAX does itself. Every entry is computed from both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import retape
import retape.jax
from tests.engines.jaxpr.support.programs import assert_close

pytestmark = pytest.mark.release

Function = Callable[..., Any]
PLAN = retape.fixed_space(snapshots=2, stage=2)
STEPS = 5
POINT = 0.3
MANY = np.asarray([0.1, 0.2, 0.9])


def halting(x: Any, y: Any = 1.0) -> Any:
    return lax.while_loop(
        lambda c: (c[0] < STEPS) & (c[1] < 5.0),
        lambda c: (c[0] + 1, jnp.sin(c[1]) * 1.3 + 0.1 * x * y),
        (0, x * 1.0),
    )[1]


def counted(x: Any, y: Any = 1.0) -> Any:
    return lax.fori_loop(0, STEPS, lambda i, c: jnp.sin(c) * 1.3 + 0.1 * x * y, x * 1.0)


checkpointed = retape.jax.checkpointed(halting, plan=PLAN)


def check(what: Callable[[Function], Any], tolerance: float = 1e-9) -> None:
    assert_close(what(checkpointed), what(counted), tolerance)


def test_plain_reverse_mode_refuses_the_loop() -> None:
    with pytest.raises(ValueError, match="Reverse-mode differentiation does not work"):
        jax.grad(halting)(POINT)


# One transformation -----------------------------------------------------------------

ONE: dict[str, Callable[[Function], Any]] = {
    "value": lambda f: f(POINT),
    "jvp": lambda f: jax.jvp(f, (POINT,), (2.0,)),
    "jvp by both": lambda f: jax.jvp(f, (POINT, 2.0), (2.0, -1.0)),
    "vjp": lambda f: jax.vjp(f, POINT, 2.0)[1](3.0),
    "linearize": lambda f: jax.linearize(f, POINT)[1](2.0),
    "linear_transpose": lambda f: jax.linear_transpose(
        jax.linearize(f, POINT)[1], POINT
    )(3.0),
    "vmap by the first": lambda f: jax.vmap(f, (0, None))(MANY, 2.0),
    "vmap by the second": lambda f: jax.vmap(f, (None, 0))(POINT, MANY),
    "vmap by both": lambda f: jax.vmap(f)(MANY, MANY[::-1]),
    "jit": lambda f: jax.jit(f)(POINT),
}


@pytest.mark.parametrize("what", ONE.values(), ids=ONE.keys())
def test_one_transformation(what: Callable[[Function], Any]) -> None:
    check(what)


# Two --------------------------------------------------------------------------------

TWO: dict[str, Callable[[Function], Any]] = {
    "vmap of grad": lambda f: jax.vmap(jax.grad(f))(MANY),
    "vmap of grad by the first": lambda f: jax.vmap(jax.grad(f, (0, 1)), (0, None))(
        MANY, 2.0
    ),
    "vmap of grad by the second": lambda f: jax.vmap(jax.grad(f, (0, 1)), (None, 0))(
        POINT, MANY
    ),
    "grad of vmap": lambda f: jax.grad(lambda v: jnp.sum(jax.vmap(f)(v) ** 2))(MANY),
    "vmap of jvp": lambda f: jax.vmap(lambda x, t: jax.jvp(f, (x,), (t,))[1])(
        MANY, MANY
    ),
    "vmap of jvp, tangents only": lambda f: jax.vmap(
        lambda t: jax.jvp(f, (POINT,), (t,))[1]
    )(MANY),
    "vmap of vjp, cotangents only": lambda f: jax.vmap(jax.vjp(f, POINT)[1])(MANY),
    "jit of grad": lambda f: jax.jit(jax.grad(f))(POINT),
    "grad of jit": lambda f: jax.grad(jax.jit(f))(POINT),
    "jit with a donated argument": lambda f: jax.jit(jax.grad(f), donate_argnums=0)(
        jnp.array(POINT)
    ),
    "vmap of vmap of grad": lambda f: jax.vmap(
        lambda x: jax.vmap(lambda y: jax.grad(f)(x, y))(MANY)
    )(MANY),
    "jacfwd": lambda f: jax.jacfwd(lambda v: jnp.sin(f(v[0], v[1]) * v))(MANY),
    "jacrev": lambda f: jax.jacrev(lambda v: jnp.sin(f(v[0], v[1]) * v))(MANY),
}


@pytest.mark.slow("grad of vmap", "vmap of vmap of grad")
@pytest.mark.parametrize("what", TWO.values(), ids=TWO.keys())
def test_two_transformations(what: Callable[[Function], Any]) -> None:
    check(what)


# Derivatives of derivatives: the nine pairs -----------------------------------------


def forwards(f: Function) -> Function:
    return lambda x: jax.jvp(f, (x,), (1.0,))[1]


def sublinear(f: Function) -> Function:
    return retape.jax.grad(f, plan=PLAN)


MODES = {"forward": forwards, "reverse": jax.grad, "checkpointed": sublinear}
PAIRS = [(outer, inner) for outer in MODES for inner in MODES]


@pytest.mark.parametrize(("outer", "inner"), PAIRS)
@pytest.mark.slow
def test_nested_derivatives(outer: str, inner: str) -> None:
    """The paper's Section 7.3, with split points inside the inner derivative."""
    got = MODES[outer](MODES[inner](checkpointed))(POINT)
    assert_close(got, jax.hessian(counted)(POINT))


@pytest.mark.slow
def test_hessian_vector_products_both_ways() -> None:
    def f(g: Function) -> Function:
        return lambda v: g(v[0], v[1]) * v[2]

    v, t = jnp.asarray(MANY), jnp.asarray([1.0, -2.0, 0.5])
    want = jax.hessian(f(counted))(v) @ t
    forward_over_reverse = jax.jvp(jax.grad(f(checkpointed)), (v,), (t,))[1]
    reverse_over_forward = jax.grad(lambda v: jax.jvp(f(checkpointed), (v,), (t,))[1])(
        v
    )
    assert_close(forward_over_reverse, want)
    assert_close(reverse_over_forward, want)


@pytest.mark.slow
def test_third_derivative() -> None:
    got = jax.grad(forwards(forwards(checkpointed)))(POINT)
    assert_close(got, forwards(forwards(forwards(counted)))(POINT))


@pytest.mark.slow
def test_vmap_of_a_second_derivative() -> None:
    check(lambda f: jax.vmap(forwards(jax.grad(f)))(MANY))


@pytest.mark.slow
def test_gradient_in_a_gradient_with_a_closed_over_tracer() -> None:
    def what(f: Function) -> Any:
        return jax.jit(jax.grad(lambda w: jax.grad(lambda y: f(y * w))(POINT)))(2.0)

    check(what)


# Inside and around other constructs -------------------------------------------------


def in_scan(f: Function) -> Function:
    return lambda x: lax.scan(lambda c, _: (f(c), c), x, None, length=3)[0]


def in_while(f: Function) -> Function:
    body = lambda c: (f(c[0]), c[1] + 1)  # noqa: E731
    return lambda x: lax.while_loop(lambda c: c[1] < 3, body, (x, 0))[0]


def in_cond(f: Function) -> Function:
    return lambda x: lax.cond(x > 0, f, jnp.sin, x) + lax.cond(x < 0, f, jnp.sin, x)


AROUND: dict[str, Callable[[Function], Any]] = {
    "grad of a scan around": lambda f: jax.grad(in_scan(f))(POINT),
    "jvp of a while around": lambda f: forwards(in_while(f))(POINT),
    "grad of a cond around": lambda f: jax.grad(in_cond(f))(POINT),
    "grad inside a while": lambda f: in_while(jax.grad(f))(POINT),
    "grad inside a cond": lambda f: in_cond(jax.grad(f))(POINT),
    "grad inside a scan": lambda f: in_scan(jax.grad(f))(POINT),
    "checkpoint around": lambda f: jax.grad(jax.checkpoint(f))(POINT),
    "checkpoint in a scan around": lambda f: jax.grad(in_scan(jax.checkpoint(f)))(
        POINT
    ),
    "sharing a point": lambda f: jax.grad(lambda x: f(x, x) * f(x))(POINT),
}


@pytest.mark.slow("grad of a cond around")
@pytest.mark.parametrize("what", AROUND.values(), ids=AROUND.keys())
def test_inside_another_construct(what: Callable[[Function], Any]) -> None:
    check(what)


def test_checkpointed_around_a_loop_around_checkpointed() -> None:
    """A loop over a checkpointed function, differentiated in sublinear memory."""
    got = retape.jax.grad(in_while(checkpointed), plan=PLAN)(POINT)
    assert_close(got, jax.grad(in_scan(counted))(POINT))


def ruled(rule: Function, loop: Function) -> Function:
    return lambda x: loop(lambda c: rule(c) * 1.3 + 0.1 * x, x)


def until(body: Function, x: Any) -> Any:
    turn = lambda c: (body(c[0]), c[1] + 1)  # noqa: E731
    return lax.while_loop(lambda c: c[1] < STEPS, turn, (x, 0))[0]


def for_each(body: Function, x: Any) -> Any:
    return lax.fori_loop(0, STEPS, lambda i, c: body(c), x)


@jax.custom_jvp
def sine(x: Any) -> Any:
    return jnp.sin(x)


@sine.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return sine(primals[0]), tangents[0] * jnp.cos(primals[0])


@pytest.mark.slow
def test_custom_jvp_inside_a_second_derivative() -> None:
    """With a true rule: after partial evaluation JAX itself forgets a false one."""
    f = retape.jax.checkpointed(ruled(sine, until), plan=PLAN)
    got = forwards(jax.grad(f))(POINT)
    assert_close(got, forwards(forwards(ruled(jnp.sin, for_each)))(POINT))


def test_the_table_can_fail() -> None:
    with pytest.raises(AssertionError):
        assert_close(
            jax.grad(checkpointed)(POINT), jax.grad(counted)(POINT + 1e-6), 1e-9
        )

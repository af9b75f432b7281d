"""A checkpointed function under every transformation, and under pairs of them.

`halting` runs a loop that plain reverse mode refuses; `counted` is the same function in
a form that JAX does itself. Every row is computed from both. Gradients compiled, mapped
and in a scan are in `judges/jax/test_forms.py`.
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
ALONG = np.asarray([1.0, -2.0, 0.5])


def until(body: Function, x: Any) -> Any:
    turn = lambda c: (c[0] + 1, body(c[1]))  # noqa: E731
    going = lambda c: (c[0] < STEPS) & (c[1] < 5.0)  # noqa: E731
    return lax.while_loop(going, turn, (0, x * 1.0))[1]


def halting(x: Any, y: Any = 1.0) -> Any:
    return until(lambda c: jnp.sin(c) * 1.3 + 0.1 * x * y, x)


def counted(x: Any, y: Any = 1.0) -> Any:
    return lax.fori_loop(0, STEPS, lambda i, c: jnp.sin(c) * 1.3 + 0.1 * x * y, x * 1.0)


checkpointed = retape.jax.checkpointed(halting, plan=PLAN)


def test_plain_reverse_mode_refuses_the_loop() -> None:
    with pytest.raises(ValueError, match="Reverse-mode differentiation does not work"):
        jax.grad(halting)(POINT)


def forwards(f: Function) -> Function:
    return lambda x: jax.jvp(f, (x,), (1.0,))[1]


def of_three(f: Function) -> Function:
    return lambda v: f(v[0], v[1]) * v[2]


def in_scan(f: Function) -> Function:
    return lambda x: lax.scan(lambda c, _: (f(c), c), x, None, length=3)[0]


def in_while(f: Function) -> Function:
    body = lambda c: (f(c[0]), c[1] + 1)  # noqa: E731
    return lambda x: lax.while_loop(lambda c: c[1] < 3, body, (x, 0))[0]


def in_cond(f: Function) -> Function:
    return lambda x: lax.cond(x > 0, f, jnp.sin, x) + lax.cond(x < 0, f, jnp.sin, x)


def by_both(f: Function) -> Function:
    return jax.grad(f, (0, 1))


ROWS: dict[str, Callable[[Function], Any]] = {
    # One transformation.
    "value": lambda f: f(POINT),
    "jvp by both": lambda f: jax.jvp(f, (POINT, 2.0), (2.0, -1.0)),
    "vjp": lambda f: jax.vjp(f, POINT, 2.0)[1](3.0),
    "linearize": lambda f: jax.linearize(f, POINT)[1](2.0),
    "linear_transpose": lambda f: jax.linear_transpose(
        jax.linearize(f, POINT)[1], POINT
    )(3.0),
    "vmap by both": lambda f: jax.vmap(f)(MANY, MANY[::-1]),
    # Two.
    "vmap of grad by the first": lambda f: jax.vmap(by_both(f), (0, None))(MANY, 2.0),
    "vmap of grad by the second": lambda f: jax.vmap(by_both(f), (None, 0))(0.3, MANY),
    "grad of vmap": lambda f: jax.grad(lambda v: jnp.sum(jax.vmap(f)(v) ** 2))(MANY),
    "vmap of jvp": lambda f: jax.vmap(lambda x, t: jax.jvp(f, (x,), (t,))[1])(
        MANY, MANY
    ),
    "vmap of jvp's tangents": lambda f: jax.vmap(
        lambda t: jax.jvp(f, (POINT,), (t,))[1]
    )(MANY),
    "vmap of cotangents": lambda f: jax.vmap(jax.vjp(f, POINT)[1])(MANY),
    "grad of jit": lambda f: jax.grad(jax.jit(f))(POINT),
    "donated": lambda f: jax.jit(jax.grad(f), donate_argnums=0)(jnp.array(POINT)),
    "vmap of vmap of grad": lambda f: jax.vmap(
        lambda x: jax.vmap(lambda y: jax.grad(f)(x, y))(MANY)
    )(MANY),
    "jacfwd": lambda f: jax.jacfwd(lambda v: jnp.sin(f(v[0], v[1]) * v))(MANY),
    "jacrev": lambda f: jax.jacrev(lambda v: jnp.sin(f(v[0], v[1]) * v))(MANY),
    # Inside and around other constructs.
    "grad of a scan around": lambda f: jax.grad(in_scan(f))(POINT),
    "jvp of a while around": lambda f: forwards(in_while(f))(POINT),
    "grad of a cond around": lambda f: jax.grad(in_cond(f))(POINT),
    "grad inside a while": lambda f: in_while(jax.grad(f))(POINT),
    "grad inside a cond": lambda f: in_cond(jax.grad(f))(POINT),
    "checkpoint around": lambda f: jax.grad(jax.checkpoint(f))(POINT),
    "checkpoint in a scan": lambda f: jax.grad(in_scan(jax.checkpoint(f)))(POINT),
    "sharing a point": lambda f: jax.grad(lambda x: f(x, x) * f(x))(POINT),
    # Derivatives of derivatives.
    "jvp of grad": lambda f: jax.jvp(jax.grad(of_three(f)), (MANY,), (ALONG,))[1],
    "grad of jvp": lambda f: jax.grad(
        lambda v: jax.jvp(of_three(f), (v,), (ALONG,))[1]
    )(MANY),
    "third": lambda f: jax.grad(forwards(forwards(f)))(POINT),
    "vmap of a second": lambda f: jax.vmap(forwards(jax.grad(f)))(MANY),
    "grad in a grad, closed over": lambda f: jax.jit(
        jax.grad(lambda w: jax.grad(lambda y: f(y * w))(POINT))
    )(2.0),
}


@pytest.mark.slow(
    "grad of vmap",
    "vmap of vmap of grad",
    "grad of a cond around",
    "vmap of grad by the second",
    "jacrev",
    "grad of a scan around",
    *list(ROWS)[list(ROWS).index("jvp of grad") :],
)
@pytest.mark.parametrize("name", ROWS)
def test_a_checkpointed_function_is_the_plain_one(name: str) -> None:
    assert_close(ROWS[name](checkpointed), ROWS[name](counted))


MODES: dict[str, Function] = {
    "forward": forwards,
    "reverse": jax.grad,
    "checkpointed": lambda f: retape.jax.grad(f, plan=PLAN),
}


@pytest.mark.slow
@pytest.mark.parametrize("outer", MODES)
@pytest.mark.parametrize("inner", MODES)
def test_nested_derivatives(outer: str, inner: str) -> None:
    """The paper's Section 7.3, with split points inside the inner derivative."""
    got = MODES[outer](MODES[inner](checkpointed))(POINT)
    assert_close(got, jax.hessian(counted)(POINT))


def test_checkpointed_around_a_loop_around_checkpointed() -> None:
    """A loop over a checkpointed function, differentiated in sublinear memory."""
    got = retape.jax.grad(in_while(checkpointed), plan=PLAN)(POINT)
    assert_close(got, jax.grad(in_scan(counted))(POINT))


@jax.custom_jvp
def sine(x: Any) -> Any:
    return jnp.sin(x)


@sine.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return sine(primals[0]), tangents[0] * jnp.cos(primals[0])


@pytest.mark.slow
def test_custom_jvp_inside_a_second_derivative() -> None:
    """With a true rule: after partial evaluation JAX itself forgets a false one."""
    ruled = lambda x: until(lambda c: sine(c) * 1.3 + 0.1 * x, x)  # noqa: E731
    got = forwards(jax.grad(retape.jax.checkpointed(ruled, plan=PLAN)))(POINT)
    assert_close(got, forwards(forwards(counted))(POINT))


def test_the_table_can_fail() -> None:
    with pytest.raises(AssertionError):
        assert_close(jax.grad(checkpointed)(POINT), jax.grad(counted)(POINT + 1e-6))

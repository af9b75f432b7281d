"""Custom reverse rules that hide a loop: opened if known, else named in a warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import retape
import retape.jax
from tests.engines.jaxpr.support.programs import assert_close

PLAN = retape.fixed_space(snapshots=3)


def stores_all(x: Any) -> Any:
    """A loop whose custom rule keeps every value that it passed through."""
    steps = 20

    def body(v: Any, _: Any) -> Any:
        return jnp.sin(v) + 0.1 * v, v

    @jax.custom_vjp
    def loop(v: Any) -> Any:
        return jax.lax.fori_loop(0, steps, lambda i, v: body(v, None)[0], v)

    def forward(v: Any) -> Any:
        return jax.lax.scan(body, v, length=steps)

    def backward(kept: Any, cotangent: Any) -> Any:
        def pull(c: Any, v: Any) -> Any:
            return jax.vjp(lambda v: body(v, None)[0], v)[1](c)[0], None

        return (jax.lax.scan(pull, cotangent, kept, reverse=True)[0],)

    loop.defvjp(forward, backward)
    return jnp.sum(loop(x) ** 2)


def implicit(a: Any) -> Any:
    """A square root by iteration, with its derivative at the solution."""

    @jax.custom_vjp
    def root(a: Any) -> Any:
        return jax.lax.fori_loop(0, 30, lambda i, x: (x + a / x) / 2, a)

    root.defvjp(
        lambda a: (root(a),) * 2,
        lambda x, c: (c / (2 * x),),
    )
    return jnp.sum(root(a))


def test_a_rule_that_keeps_a_tape_is_named_with_the_way_round() -> None:
    x = jnp.linspace(0.1, 1.0, 16)
    with pytest.warns(retape.RetapeWarning) as caught:
        gradient = retape.jax.grad(stores_all, plan=PLAN)(x)
    assert_close(gradient, jax.grad(stores_all)(x), 1e-14)
    (text,) = {str(w.message) for w in caught}
    assert text.startswith("The reverse rule `stores_all.<locals>.backward` of the")
    assert "test_hidden_tapes.py" in text
    assert "keeps 2.5 KiB of its own, where its inputs and outputs are 256 B" in text
    assert "adjoint=retape.diffrax.RetapeAdjoint(plan=...)" in text


@pytest.mark.parametrize("ask", [retape.jax.explain, retape.jax.measure])
def test_explain_and_measure_warn_too(ask: Callable[..., Any]) -> None:
    with pytest.warns(retape.RetapeWarning, match="hides a loop from the plan"):
        ask(stores_all, jnp.ones(3), plan=PLAN)


@pytest.mark.parametrize("inside", ["loop", "branch", "jit"])
def test_a_rule_inside_something_is_found(inside: str) -> None:
    def fun(x: Any) -> Any:
        match inside:
            case "loop":
                return jax.lax.fori_loop(0, 3, lambda i, y: y + stores_all(x), 0.0)
            case "branch":
                return jax.lax.cond(x[0] > 0, stores_all, jnp.sum, x)
            case _:
                return jax.jit(stores_all)(x)

    with pytest.warns(retape.RetapeWarning, match="stores_all"):
        retape.jax.explain(fun, jnp.ones(3), plan=PLAN)


def test_an_implicit_derivative_is_no_hidden_tape() -> None:
    a = jnp.asarray([2.0, 9.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradient = retape.jax.grad(implicit, plan=PLAN)(a)
    assert_close(gradient, 0.5 / jnp.sqrt(a), 1e-14)


def test_a_rule_beside_the_derivative_is_no_matter() -> None:
    def fun(x: Any, y: Any) -> Any:
        return jnp.sum(jnp.sin(x)) + stores_all(y)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = retape.jax.explain(fun, jnp.ones(3), jnp.ones(3), plan=PLAN)
    assert found.steps is not None


# Equinox's checkpointed loop, which diffrax's default adjoint is made of -------------


@pytest.fixture
def loop() -> Callable[..., Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eqxi = pytest.importorskip("equinox.internal")

    def fun(x: Any, n: Any = 12.0) -> Any:
        def body(carry: Any) -> Any:
            i, y, rows = carry
            y = jnp.sin(y) + 0.1 * x
            return i + 1, y, rows.at[i].set(jnp.sum(y))

        _, y, rows = eqxi.while_loop(
            lambda c: c[0] < n,
            body,
            (0, x, jnp.zeros(64)),
            kind="checkpointed",
            checkpoints=3,
            buffers=lambda c: c[2],
            max_steps=64,
        )
        return jnp.sum(y**2) + jnp.sum(rows**2)

    return fun


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_opened_loops_have_all_derivatives(loop: Callable[..., Any]) -> None:
    """Forward mode and second order, which the custom rule refuses."""
    x, n = jnp.linspace(0.1, 1.0, 3), 5.0
    with pytest.raises(Exception, match="Reverse-mode|forward-mode|custom_vjp"):
        jax.jvp(loop, (x, n), (x, 0.0))
    ours = retape.jax.checkpointed(lambda x: loop(x, n), plan=PLAN)

    def plain(x: Any) -> Any:
        y, total = x, 0.0
        for _ in range(5):
            y = jnp.sin(y) + 0.1 * x
            total += jnp.sum(y) ** 2
        return jnp.sum(y**2) + total

    assert_close(jax.jvp(ours, (x,), (x,))[1], jax.jvp(plain, (x,), (x,))[1], 1e-13)
    assert_close(jax.hessian(ours)(x), jax.hessian(plain)(x), 1e-12)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_opened_loops_through_vmap(loop: Callable[..., Any]) -> None:
    """A rule that `vmap` wrapped is recognised, with lanes that end at other times."""
    xs, ns = jnp.linspace(0.1, 1.0, 6).reshape(3, 2), jnp.asarray([2.0, 7.0, 16.0])

    def fun(xs: Any) -> Any:
        return jnp.sum(jax.vmap(loop)(xs, ns))

    assert retape.jax.explain(fun, xs, plan=PLAN).loops == 1
    want = jnp.stack([jax.grad(loop)(x, n) for x, n in zip(xs, ns, strict=True)])
    assert_close(retape.jax.grad(fun, plan=PLAN)(xs), want, 1e-13)

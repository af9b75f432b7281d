"""Custom reverse rules that hide a loop: opened if known, else named in a warning."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import retape
import retape.jax
from tests.engines.jaxpr.support.programs import assert_close

PLAN = retape.fixed_space(snapshots=3)
X = np.linspace(0.1, 1.0, 16)


def stores_all(x: Any, signs: list[Any] | None = None) -> Any:
    """A loop whose custom rule keeps every value that it passed through.

    `signs` are given the rule, and a function that it reads from around it.
    """

    def body(v: Any, _: Any) -> Any:
        return jnp.sin(v) + 0.1 * v, v

    @jax.custom_vjp
    def loop(v: Any) -> Any:
        return jax.lax.fori_loop(0, 20, lambda i, v: body(v, None)[0], v)

    def backward(kept: Any, cotangent: Any) -> Any:
        def pull(c: Any, v: Any) -> Any:
            return jax.vjp(lambda v: body(v, None)[0], v)[1](c)[0], None

        return (jax.lax.scan(pull, cotangent, kept, reverse=True)[0],)

    loop.defvjp(lambda v: jax.lax.scan(body, v, length=20), backward)
    if signs is not None:
        signs[:] = backward, body
    return jnp.sum(loop(x) ** 2)


def implicit(a: Any) -> Any:
    """A square root by iteration, with its derivative at the solution."""

    @jax.custom_vjp
    def root(a: Any) -> Any:
        return jax.lax.fori_loop(0, 30, lambda i, x: (x + a / x) / 2, a)

    root.defvjp(lambda a: (root(a),) * 2, lambda x, c: (c / (2 * x),))
    return jnp.sum(root(a))


def test_a_rule_that_keeps_a_tape_is_named_with_the_way_round() -> None:
    with pytest.warns(retape.RetapeWarning) as caught:
        gradient = retape.jax.grad(stores_all, plan=PLAN)(X)
    assert_close(gradient, jax.grad(stores_all)(X), 1e-14)
    (text,) = {str(w.message) for w in caught}
    assert text.startswith("The reverse rule `stores_all.<locals>.backward` of the")
    assert "test_hidden_tapes.py" in text
    assert "keeps 2.5 KiB of its own, where its inputs and outputs are 256 B" in text
    assert "adjoint=retape.diffrax.RetapeAdjoint(plan=...)" in text


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("sign", [0, 1], ids=["the rule", "what it reads"])
def test_a_rule_that_is_listed_is_opened(
    sign: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In the place of Equinox's, whose rule reads the function that wrote it.
    signs: list[Any] = []
    there = SimpleNamespace()
    monkeypatch.setitem(sys.modules, "equinox.internal._loop.checkpointed", there)

    def fun(x: Any) -> Any:
        found = stores_all(x, signs)
        there._checkpointed_while_loop = signs[sign]
        return found

    assert_close(retape.jax.grad(fun, plan=PLAN)(X), jax.grad(stores_all)(X), 1e-14)


INSIDE: dict[str, Callable[[Any], Any]] = {
    "itself": stores_all,
    "loop": lambda x: jax.lax.fori_loop(0, 3, lambda i, y: y + stores_all(x), 0.0),
    "branch": lambda x: jax.lax.cond(x[0] > 0, stores_all, jnp.sum, x),
    "jit": lambda x: jax.jit(stores_all)(x),
}


@pytest.mark.parametrize("name", INSIDE)
def test_a_rule_inside_something_is_found(name: str) -> None:
    """By `explain`, too, which runs nothing."""
    with pytest.warns(retape.RetapeWarning, match="stores_all.*hides a loop from the"):
        retape.jax.explain(INSIDE[name], X, plan=PLAN)


@pytest.mark.filterwarnings("error")
def test_what_hides_nothing_is_not_named() -> None:
    """An implicit derivative, and a rule beside the derivative."""
    gradient = retape.jax.grad(implicit, plan=PLAN)(X)
    assert_close(gradient, 0.5 / jnp.sqrt(X), 1e-14)
    beside = lambda x, y: jnp.sum(jnp.sin(x)) + stores_all(y)  # noqa: E731
    assert retape.jax.explain(beside, X, X, plan=PLAN).steps is not None


# Equinox's checkpointed loop, which diffrax's default adjoint is made of -------------


def of_equinox(x: Any, n: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eqxi = pytest.importorskip("equinox.internal")

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


def plain(x: Any, n: int) -> Any:
    y, total = x, 0.0
    for _ in range(n):
        y = jnp.sin(y) + 0.1 * x
        total += jnp.sum(y) ** 2
    return jnp.sum(y**2) + total


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_opened_loops_have_all_derivatives() -> None:
    """Forward mode and second order, which the custom rule refuses."""
    x, n = jnp.linspace(0.1, 1.0, 3), 5
    with pytest.raises(Exception, match="Reverse-mode|forward-mode|custom_vjp"):
        jax.jvp(lambda x: of_equinox(x, n), (x,), (x,))
    ours = retape.jax.checkpointed(lambda x: of_equinox(x, n), plan=PLAN)
    for derivative in (
        lambda f: jax.jvp(f, (x,), (x,))[1],
        lambda f: jax.hessian(f)(x),
    ):
        assert_close(derivative(ours), derivative(lambda x: plain(x, n)), 1e-12)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_opened_loops_through_vmap() -> None:
    """A rule that `vmap` wrapped is recognised, with lanes that end at other times."""
    xs, ns = jnp.linspace(0.1, 1.0, 6).reshape(3, 2), (2, 7, 16)
    fun = lambda xs: jnp.sum(jax.vmap(of_equinox)(xs, jnp.asarray(ns)))  # noqa: E731
    assert retape.jax.explain(fun, xs, plan=PLAN).loops == 1
    want = [jax.grad(plain)(x, n) for x, n in zip(xs, ns, strict=True)]
    assert_close(retape.jax.grad(fun, plan=PLAN)(xs), jnp.stack(want), 1e-13)

"""A marked function keeps of its arguments what its pull-back reads, and no more.

The oracle is `jax.checkpoint`: of the same function, the arrays in the pull-back that
`jax.vjp` gives hold no more bytes, and cotangents are equal, under every transformation
of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name

import retape.jax
from retape.jax import policies

Function = Callable[..., Any]
X = jnp.sin(jnp.arange(64.0)).reshape(8, 8)
SHIFT = jnp.cos(X)


@jax.custom_vjp
def _scaled(x: Any, by: Any) -> Any:
    return x * by


_scaled.defvjp(lambda x, by: (x * by, by), lambda by, c: (c * by, jnp.zeros_like(by)))


def _gated(x: Any, y: Any) -> Any:
    return lax.cond(x[0, 0] > -2, lambda: jnp.sin(x) + y, lambda: x - y)


def _scanned(x: Any, y: Any) -> Any:
    return lax.scan(lambda c, row: (jnp.sin(c) + row, None), x[0], y)[0]


def _ended(x: Any, y: Any) -> Any:
    """It goes on as long as `y` says, of which the derivative is none of `y`'s."""
    n = lax.stop_gradient(y).sum().astype(int) % 3
    return lax.fori_loop(0, 3, lambda i, c: jnp.where(i < n, jnp.sin(c), c), x) + y


PROGRAMS: dict[str, Function] = {
    "sum": lambda x, y: jnp.sin(x) + y,
    "twice": lambda x, y: 2 * x - y,
    "product": lambda x, y: x @ y,
    "with a constant": lambda x, y: jnp.sin(x) + SHIFT @ y,
    "relu": lambda x, y: jax.nn.relu(x + y) + y,
    "in a call": lambda x, y: jax.jit(lambda x, y: jnp.tanh(x) + 3 * y)(x, y),
    "scan": _scanned,
    "cond": _gated,
    "of its own length": _ended,
    "custom rule": _scaled,
    "marked inside": lambda x, y: retape.jax.checkpoint(jnp.sin)(x) + y,
    "marked by JAX": lambda x, y: jax.checkpoint(jnp.sin)(x) + y,
    "named": lambda x, y: jnp.sin(checkpoint_name(2 * x, "kept")) + y,
    "whole numbers": lambda x, y: x * y.argmax(0) + y,
    "nothing of one": lambda x, y: jnp.sin(x) + 0 * lax.stop_gradient(y),
}

POLICIES: dict[str, tuple[Any, Any]] = {
    "none": (None, None),
    "names": (
        jax.checkpoint_policies.save_only_these_names("kept"),
        policies.names(save=["kept"]),
    ),
    "dots": (jax.checkpoint_policies.dots_saveable,) * 2,
}

MORE = {("named", "names"): X.nbytes}
"""What a value that is kept was made of is kept beside it: second derivatives go by
way of that."""

pytestmark = pytest.mark.filterwarnings("ignore:`policies.names`")


def _kept(f: Function) -> int:
    pull = jax.vjp(f, X, X + 1)[1]
    leaves = [v for v in jax.tree.leaves(pull) if isinstance(v, jax.Array)]
    return sum({id(v): v.nbytes for v in leaves}.values())


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_no_argument_is_kept_that_is_not_read(program: str, policy: str) -> None:
    f, (theirs, ours) = PROGRAMS[program], POLICIES[policy]
    marked = retape.jax.checkpoint(f, policy=ours)
    more = MORE.get((program, policy), 0)
    assert _kept(marked) <= _kept(jax.checkpoint(f, policy=theirs)) + more


def _gradient(f: Function) -> Function:
    return jax.grad(lambda x, y: (f(x, y) ** 2).sum(), (0, 1))


DERIVATIVES: dict[str, Callable[[Function], Any]] = {
    "gradient": lambda f: _gradient(f)(X, X + 1),
    "compiled": lambda f: jax.jit(_gradient(f))(X, X + 1),
    "by the second": lambda f: jax.grad(lambda y: f(X, y).sum())(X + 1),
    "of a batch": lambda f: jax.vmap(_gradient(f), (0, None))(jnp.stack([X, -X]), X),
    "of a batch of cotangents": lambda f: jax.vmap(jax.vjp(f, X, X + 1)[1])(
        jnp.stack([f(X, X), -f(X, X)])
    ),
    "twice": lambda f: jax.jvp(lambda x: _gradient(f)(x, X), (X,), (jnp.ones_like(X),))[
        1
    ],
    "reverse over reverse": lambda f: jax.grad(
        lambda x: (_gradient(f)(x, X + 1)[1] ** 2).sum()
    )(X),
    "linearized": lambda f: jax.linearize(f, X, X + 1)[1](X, 2 * X),
}
FAST = [("sum", d) for d in DERIVATIVES]
FAST += [(p, "gradient") for p in ("scan", "cond", "custom rule", "marked inside")]
FORWARD = ("twice", "linearized")
"""What JAX refuses of a custom rule for reverse mode."""


@pytest.mark.parametrize(
    ("program", "derivative"),
    [
        pytest.param(p, d, marks=() if (p, d) in FAST else pytest.mark.slow)
        for p in PROGRAMS
        for d in DERIVATIVES
        if not (p == "custom rule" and d in FORWARD)
    ],
)
def test_derivatives_are_those_of_the_function(program: str, derivative: str) -> None:
    f, take = PROGRAMS[program], DERIVATIVES[derivative]
    got, want = take(retape.jax.checkpoint(f)), take(f)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)

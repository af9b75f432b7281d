"""A marked function keeps of its arguments what its pull-back reads, and no more.

The oracle is `jax.checkpoint`: of the same function, the arrays in the pull-back that
`jax.vjp` gives hold no more bytes. Derivatives are those of the function as it is: of
every operation, and by every transformation under every mark.
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
from tests.judges.jax.judging import LAYERS, assert_equal
from tests.judges.pairwise import dealt

Function = Callable[..., Any]
X = np.sin(np.arange(64.0)).reshape(8, 8)
SHIFT = np.cos(X)


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

pytestmark = [
    pytest.mark.usefixtures("double_precision"),
    pytest.mark.filterwarnings("ignore:`policies.names`"),
]


def _kept(f: Function) -> int:
    pull = jax.vjp(f, jnp.asarray(X), jnp.asarray(X + 1))[1]
    leaves = [v for v in jax.tree.leaves(pull) if isinstance(v, jax.Array)]
    return sum({id(v): v.nbytes for v in leaves}.values())


@pytest.mark.parametrize(
    ("program", "policy"), dealt(list(PROGRAMS), list(POLICIES), rounds=2)
)
def test_no_argument_is_kept_that_is_not_read(program: str, policy: str) -> None:
    f, (theirs, ours) = PROGRAMS[program], POLICIES[policy]
    marked = retape.jax.checkpoint(f, policy=ours)
    more = MORE.get((program, policy), 0)
    assert _kept(marked) <= _kept(jax.checkpoint(f, policy=theirs)) + more


# Derivatives --------------------------------------------------------------------------


def _layers(x: Any, y: Any) -> Any:
    """Layers whose weights are slices of a stack, some of them twice."""
    for w in (y[0], y[3], y[-1], y[1:3].sum(0)):
        x = x + jnp.tanh(jnp.sin(x) * w)
    return x + y.sum()


OPERATIONS: dict[str, Function] = {
    "layers": _layers,
    "elementwise": lambda x, y: jnp.exp(x) / (1 + x * y) - jnp.arctan(y),
    "indexing": lambda x, y: x[1:, ::2].sum(0) * y[jnp.array([0, 2]), 0].sum(),
    "update": lambda x, y: x.at[0].mul(3.0).at[1, 2].add(y[2, 0]),
    "order": lambda x, y: jnp.sort(x, 1).cumsum(0) * jnp.max(y),
    "linear algebra": lambda x, y: jnp.linalg.solve(x @ x.T + jnp.eye(8), y),
    "convolution": lambda x, y: jnp.convolve(x[0], y[1]),
    "fft": lambda x, y: jnp.abs(jnp.fft.fft(x * y)),
    "random": lambda x, y: x * y * jax.random.bernoulli(jax.random.key(0), 0.5, (8, 8)),
    "complex": lambda x, y: jnp.real((x + 1j * y) ** 3),
}
FUNCTIONS = PROGRAMS | OPERATIONS


def _gradient(f: Function) -> Function:
    return jax.grad(lambda x, y: (f(x, y) ** 2).sum(), (0, 1))


def _along(f: Function) -> Any:
    return jax.jvp(f, (X, X + 1), (jnp.cos(X), jnp.sin(X)))


def _reversed_twice(f: Function) -> Any:
    return jax.grad(lambda x: (_gradient(f)(x, X + 1)[1] ** 2).sum())(X)


def _in_a_scan(f: Function) -> Any:
    step = lambda c, y: (c + f(X * c, y).sum(), None)  # noqa: E731
    return jax.grad(lambda y: lax.scan(step, 1.0, y[None])[0])(X + 1)


def _in_a_branch(f: Function) -> Any:
    nothing, something = lambda x, y: 0 * x.sum(), lambda x, y: f(x, y).sum()
    return _gradient(lambda x, y: lax.cond(x[0, 1] > 9, nothing, something, x, y))(X, X)


def _of_cotangents(f: Function) -> Any:
    y, pull = jax.vjp(f, X, X + 1)
    return jax.vmap(pull)(jnp.stack([y, -y]))


BATCH = np.stack([X, -X])
DERIVATIVES: dict[str, Callable[[Function], Any]] = {
    "gradient": lambda f: _gradient(f)(X, X + 1),
    "compiled": lambda f: jax.jit(_gradient(f))(X, X + 1),
    "by the second": lambda f: jax.grad(lambda y: f(X, y).sum())(X + 1),
    "of a batch": lambda f: jax.vmap(_gradient(f), (0, None))(BATCH, X),
    "through a batch": lambda f: jax.grad(
        lambda y: jax.vmap(f, (0, None))(BATCH, y).sum()
    )(X),
    "of a batch of cotangents": _of_cotangents,
    "forwards": _along,
    "forward over reverse": lambda f: _along(_gradient(f))[1],
    "reverse over reverse": _reversed_twice,
    "linearized": lambda f: jax.linearize(f, X, X + 1)[1](X, 2 * X),
    "in a scan": _in_a_scan,
    "in a branch": _in_a_branch,
    "by retape": lambda f: retape.jax.grad(lambda *a: (f(*a) ** 2).sum(), (0, 1))(X, X),
}
FORWARD = ("forwards", "forward over reverse", "linearized")
"""What JAX refuses of a custom rule for reverse mode."""


@pytest.mark.parametrize(
    ("program", "derivative"),
    [
        pytest.param(p, d, marks=() if fast else pytest.mark.slow)
        for p in FUNCTIONS
        for d in (DERIVATIVES if p in PROGRAMS else ("gradient", "compiled"))
        for fast in [d == "compiled" and p not in ("sum", "twice", "whole numbers")]
        if not (p == "custom rule" and d in FORWARD)
    ],
)
def test_derivatives_are_those_of_the_function(program: str, derivative: str) -> None:
    f, take = FUNCTIONS[program], DERIVATIVES[derivative]
    assert_equal(take(retape.jax.checkpoint(f)), take(f))


@pytest.mark.slow("names-through a batch")
@pytest.mark.parametrize(("mark", "derivative"), dealt(list(LAYERS), list(DERIVATIVES)))
def test_every_mark_under_every_transformation(mark: str, derivative: str) -> None:
    take = DERIVATIVES[derivative]
    assert_equal(take(LAYERS[mark](_layers)), take(_layers))

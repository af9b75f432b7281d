"""Every entrance knows the rules and loops of others, as `jax.grad` does.

The rows are what a user calls, the columns what may stand in the function: loops of
Equinox's, custom rules, effects. The oracle is JAX's own gradient of the function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import retape
import retape.jax as rj

eqxi = pytest.importorskip("equinox.internal")

X = jnp.array([0.4, 0.7])


# The columns: from two numbers to two numbers -----------------------------------------


def _trips(x: Any, kind: str) -> Any:
    step = lambda s: (jnp.sin(s[0]) * 1.5, s[1] + 1)  # noqa: E731
    options: dict[str, Any] = {} if kind == "bounded" else {"checkpoints": 2}
    return eqxi.while_loop(
        lambda s: s[1] < 4, step, (x, 0), kind=kind, max_steps=6, **options
    )[0]


def _scanned(x: Any) -> Any:
    step = lambda c, r: (jnp.sin(c) + r, c * r)  # noqa: E731
    carry, rows = eqxi.scan(step, x, jnp.arange(3.0), kind="checkpointed")
    return carry + rows[-1]


def _nested(x: Any) -> Any:
    step = lambda s: (_trips(s[0], "checkpointed"), s[1] + 1)  # noqa: E731
    return eqxi.while_loop(
        lambda s: s[1] < 2, step, (x, 0), kind="checkpointed", max_steps=3
    )[0]


def _prints(x: Any) -> Any:
    def step(s: Any) -> Any:
        jax.debug.callback(lambda _: None, s[1])
        return jnp.sin(s[0]) * 1.5, s[1] + 1

    return eqxi.while_loop(
        lambda s: s[1] < 4, step, (x, 0), kind="checkpointed", max_steps=6
    )[0]


def _halved(x: Any) -> Any:
    return jax.lax.while_loop(lambda v: jnp.max(v) > 0.1, lambda v: v / 2, x)


@jax.custom_vjp
def _rule_with_loop(x: Any) -> Any:
    return _halved(x)


_rule_with_loop.defvjp(lambda x: (_halved(x), x), lambda x, g: (g * x,))


@jax.custom_vjp
def _widened(x: Any) -> Any:
    return x.astype("float32")


_widened.defvjp(lambda x: (_widened(x), None), lambda _, g: (2 * g,))


def _other_float(x: Any) -> Any:
    return _widened(x.astype("bfloat16")) * x


def _by_rule(back: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """The sine with another derivative, which reads the value and the cotangent."""
    rule = jax.custom_vjp(jnp.sin)
    rule.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (back(x, g),))
    return rule


@jax.custom_vjp
def _with_integer(n: Any, x: Any) -> Any:
    return x * n


_with_integer.defvjp(lambda n, x: (x * n, n), lambda n, g: (None, g * n))


@jax.custom_jvp
def _tangent_rule(x: Any) -> Any:
    return _halved(x)


@_tangent_rule.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return _tangent_rule(*primals), tangents[0] * primals[0]


def _reference(x: Any) -> Any:
    held = jax.new_ref(x)
    held[...] = jnp.sin(held[...])
    return held[...] * x


def _root(x: Any) -> Any:
    solve = lambda f, y: _halved(jnp.abs(y)) * 0 + X  # noqa: E731
    return (
        jax.lax.custom_root(
            lambda y: y - X * x / x, X, solve, lambda g, y: y / g(jnp.ones_like(y))
        )
        * x
    )


COLUMNS: dict[str, Callable[[Any], Any]] = {
    "Equinox, checkpointed": lambda x: _trips(x, "checkpointed"),
    "Equinox, bounded": lambda x: _trips(x, "bounded"),
    "Equinox, scan": _scanned,
    "Equinox, nested": _nested,
    "Equinox, prints": _prints,
    "custom_vjp around a while": _rule_with_loop,
    "custom_vjp of another float": _other_float,
    # No linear rules: JAX calls them all the same.
    "custom_vjp that reads no cotangent": _by_rule(lambda x, g: jnp.exp(x)),
    "custom_vjp that gives a constant": _by_rule(lambda x, g: jnp.full_like(x, 2.0)),
    "custom_vjp that clips its cotangent": _by_rule(lambda x, g: jnp.clip(g, 0, 0.5)),
    "custom_vjp of signs": _by_rule(lambda x, g: jnp.sign(g) * x),
    "custom_vjp with an integer": lambda x: _with_integer(3, x),
    "custom_jvp around a while": _tangent_rule,
    "custom_root with a while": _root,
    "reference": _reference,
}


# The rows: from a function of two numbers to its gradient -----------------------------


def _loss(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: jnp.sum(f(x) * X)


def _marked(mark: Callable[..., Any]) -> Callable[..., Any]:
    return lambda f: jax.grad(_loss(mark(f)))(X)


def _looped(loop: Callable[..., Any]) -> Callable[..., Any]:
    return lambda f: jax.grad(_loss(lambda x: loop(f, x)))(X)


def _by_policy(policy: Any) -> Callable[..., Any]:
    return _marked(lambda f: rj.checkpoint(f, policy=policy))


def _one_step(f: Any, x: Any) -> Any:
    return rj.scan(lambda c, _: (f(c), None), x, length=1)[0]


GRADIENTS: dict[str, Callable[..., Any]] = {
    "grad": lambda f: rj.grad(_loss(f))(X),
    "value_and_grad": lambda f: rj.value_and_grad(_loss(f))(X)[1],
    "vjp": lambda f: rj.vjp(_loss(f), X)[1](jnp.array(1.0))[0],
    "checkpointed": _marked(rj.checkpointed),
    "checkpoint": _marked(rj.checkpoint),
    "Checkpointed": _marked(rj.Checkpointed),
    "sqrt": _by_policy(rj.policies.sqrt()),
    "every_n": _by_policy(rj.policies.every_n(2)),
    "selective": _by_policy(rj.policies.selective()),
    "within": _by_policy(retape.within("1 MB")),
    "scan": _looped(_one_step),
}

TELLS: dict[str, Callable[..., Any]] = {
    "advise": lambda f: rj.advise(_loss(f), X, memory="1 MB").fits,
    "saved": lambda f: len(rj.saved(_loss(f), X)) > 0,
    "explain": lambda f: len(str(rj.explain(_loss(f), X))) > 0,
}


def _cells(rows: Iterable[str]) -> list[Any]:
    """All cells; one whole row and one whole column are taken at each change."""
    return [
        pytest.param(
            row,
            column,
            marks=()
            if row in ("checkpoint", "saved")
            or (column == "Equinox, checkpointed" and row in GRADIENTS)
            else pytest.mark.slow,
        )
        for row in rows
        for column in COLUMNS
    ]


@functools.cache
def _wanted(column: str) -> Any:
    return jax.grad(_loss(COLUMNS[column]))(X)


@pytest.mark.slow(
    "checkpoint-Equinox, nested",
    "checkpoint-Equinox, prints",
    "every_n-Equinox, checkpointed",
    "grad-Equinox, checkpointed",
    "scan-Equinox, checkpointed",
    "selective-Equinox, checkpointed",
    "within-Equinox, checkpointed",
    "checkpoint-Equinox, scan",
    "sqrt-Equinox, checkpointed",
    "Checkpointed-Equinox, checkpointed",
    "checkpoint-Equinox, checkpointed",
)
@pytest.mark.parametrize(("row", "column"), _cells(GRADIENTS))
@pytest.mark.filterwarnings("ignore::retape.RetapeWarning")
def test_gradients(row: str, column: str) -> None:
    found, wanted = GRADIENTS[row](COLUMNS[column]), _wanted(column)
    assert np.allclose(found, wanted, rtol=1e-5), (found, wanted)


@pytest.mark.parametrize(("row", "column"), _cells(TELLS))
@pytest.mark.filterwarnings("ignore::retape.RetapeWarning")
def test_tells(row: str, column: str) -> None:
    assert TELLS[row](COLUMNS[column])

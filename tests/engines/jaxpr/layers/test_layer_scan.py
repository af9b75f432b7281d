"""`retape.jax.scan` against `jax.lax.scan`: values, derivatives, memory, copies."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import retape
import retape.jax

WAYS: dict[str, dict[str, Any]] = {
    "default": {},
    "1 level": {"levels": 1},
    "2 levels": {"levels": 2},
    "3 levels": {"levels": 3},
    "segments": {"segment_length": 4},
    "plan": {"plan": retape.fixed_space(snapshots=3)},
    "host": {"levels": 2, "offload": "host"},
    "dots": {"levels": 2, "policy": jax.checkpoint_policies.dots_saveable},
}


def body(carry: Any, x: Any) -> tuple[Any, Any]:
    """Several carries, inputs and outputs, of several types."""
    h, count = carry
    h = jnp.tanh(h @ x["w"] + h * x["b"])
    return (h, count + x["n"]), (h.sum(), count)


def inputs(n: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(n)
    w = jnp.asarray(rng.normal(size=(n, 3, 3)))
    b = jnp.asarray(rng.normal(size=(n,)))
    xs = {"w": w, "b": b, "n": jnp.arange(n)}
    return (jnp.asarray(rng.normal(size=(2, 3))), jnp.asarray(0)), xs


def close(a: Any, b: Any) -> None:
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12), a, b
    )


def loss(loop: Callable[..., Any], h: Any, moving: Any, n: Any, count: Any) -> Any:
    (h, _), (sums, _) = loop(body, (h, count), {**moving, "n": n})
    return (h**2).sum() + (sums * jnp.arange(sums.size)).sum()


def pieces(n: int) -> tuple[Any, ...]:
    (h, count), xs = inputs(n)
    return h, {"w": xs["w"], "b": xs["b"]}, xs["n"], count


@pytest.mark.parametrize(("n", "reverse"), [(0, False), (1, False), (13, True)])
@pytest.mark.parametrize("way", WAYS)
def test_values_are_those_of_lax_scan(way: str, n: int, reverse: bool) -> None:
    init, xs = inputs(n)
    got = retape.jax.scan(body, init, xs, reverse=reverse, **WAYS[way])
    close(got, lax.scan(body, init, xs, reverse=reverse))


@functools.cache
def wanted(n: int, reverse: bool) -> Any:
    theirs = functools.partial(lax.scan, reverse=reverse)
    return jax.grad(functools.partial(loss, theirs), argnums=(0, 1))(*pieces(n))


@pytest.mark.parametrize("way", WAYS)
def test_gradients_are_those_of_lax_scan(way: str) -> None:
    n, reverse = 13, way in ("3 levels", "segments")
    ours = functools.partial(retape.jax.scan, reverse=reverse, **WAYS[way])
    got = jax.jit(jax.grad(functools.partial(loss, ours), argnums=(0, 1)))
    close(got(*pieces(n)), wanted(n, reverse))


def test_the_comparison_finds_a_small_lie() -> None:
    h, moving, n, count = pieces(13)
    wrong = {**moving, "b": moving["b"].at[4].add(1e-6)}
    slope = jax.grad(functools.partial(loss, lax.scan), argnums=(0, 1))
    with pytest.raises(AssertionError):
        close(slope(h, moving, n, count), slope(h, wrong, n, count))

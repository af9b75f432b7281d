"""`jax.export` with symbolic shapes, to three platforms, through bytes and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

import retape
import retape.jax
from retape.jax import checkpoint, checkpointed, policies

W = jnp.asarray(np.random.default_rng(0).normal(size=(6, 4, 4)) / 2)
X = jnp.asarray(np.random.default_rng(1).normal(size=(5, 4)))
PLAN = retape.fixed_space(snapshots=3, stage=1)


def scanned(x: Any, w: Any) -> Any:
    return (lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, w)[0] ** 2).sum()


def unrolled(x: Any, w: Any) -> Any:
    for i in range(3):
        x = jnp.tanh(x @ w[i])
    return (x**2).sum()


def unknown(x: Any, w: Any) -> Any:
    going = lambda c: (c[0] < 5) & (jnp.max(c[1]) < 50)  # noqa: E731
    step = lambda c: (c[0] + 1, jnp.tanh(c[1] @ w[0]))  # noqa: E731
    return (lax.while_loop(going, step, (0, x))[1] ** 2).sum()


def five(x: Any, w: Any) -> Any:
    for _ in range(5):
        x = jnp.tanh(x @ w[0])
    return (x**2).sum()


GRADIENTS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "scan": (retape.jax.grad(scanned), scanned),
    "scan, fixed": (retape.jax.grad(scanned, plan=PLAN), scanned),
    "unknown": (retape.jax.grad(unknown, plan=PLAN), five),
    "checkpointed": (jax.grad(checkpointed(scanned)), scanned),
    "sqrt": (jax.grad(checkpoint(unrolled, policy=policies.sqrt())), unrolled),
    "selective": (
        jax.grad(checkpoint(unrolled, policy=policies.selective())),
        unrolled,
    ),
}


def exported(gradient: Callable[..., Any]) -> Any:
    """For any number of rows and three platforms, written to bytes and read again."""
    (rows,) = export.symbolic_shape("rows")
    types = (
        jax.ShapeDtypeStruct((rows, 4), X.dtype),
        jax.ShapeDtypeStruct(W.shape, W.dtype),
    )
    whole = export.export(jax.jit(gradient), platforms=("cpu", "cuda", "tpu"))(*types)
    return export.deserialize(whole.serialize())


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_gradient_is_exported_for_any_number_of_rows(name: str) -> None:
    ours, plain = GRADIENTS[name]
    found = exported(ours)
    assert found.platforms == ("cpu", "cuda", "tpu")
    for rows in (5, 2):
        want = jax.grad(plain)(X[:rows], W)
        np.testing.assert_allclose(found.call(X[:rows], W), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "gradient",
    [
        retape.jax.grad(scanned, plan=retape.within("1 MB")),
        jax.grad(checkpoint(unrolled, policy=policies.within("1 MB"))),
    ],
)
def test_bytes_cannot_be_counted_where_a_size_is_a_symbol(gradient: Any) -> None:
    with pytest.raises(retape.PlanError, match="arrays of symbolic shape"):
        exported(gradient)

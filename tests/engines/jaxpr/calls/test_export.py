"""`jax.export` with symbolic shapes, to three platforms, through bytes and back."""

from __future__ import annotations

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


def marked(policy: Any) -> Any:
    return jax.grad(checkpoint(unrolled, policy=policy))


GRADIENTS: dict[str, tuple[Any, Any]] = {
    "scan, fixed": (retape.jax.grad(scanned, plan=PLAN), scanned),
    "checkpointed": (jax.grad(checkpointed(scanned)), scanned),
    "sqrt": (marked(policies.sqrt()), unrolled),
    "selective": (marked(policies.selective()), unrolled),
}


def exported(gradient: Any) -> Any:
    """For any number of rows and three platforms, written to bytes and read again."""
    (rows,) = export.symbolic_shape("rows")
    types = [jax.ShapeDtypeStruct(s, X.dtype) for s in ((rows, 4), W.shape)]
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


def test_bytes_cannot_be_counted_where_a_size_is_a_symbol() -> None:
    with pytest.raises(retape.PlanError, match="arrays of symbolic shape"):
        exported(marked(policies.within("1 MB")))

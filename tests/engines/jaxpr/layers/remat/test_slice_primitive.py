"""Slices whose cotangents are put in their places one after the other."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from retape.jax import checkpoint, policies

W = np.random.default_rng(0).normal(size=(4, 6, 6)) / 4


def network(w: Any, x: Any) -> Any:
    for i in range(4):
        x = jnp.tanh(jnp.sin(x @ w[i]))
    return jnp.sum(x**2)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=str)
@pytest.mark.parametrize("weights", ["on the mesh", "of NumPy"])
def test_weights_on_a_mesh_and_beside_one(weights: str, kind: AxisType) -> None:
    """An array that is on no mesh has a cotangent that is on one."""
    mesh = jax.make_mesh((1,), ("d",), axis_types=(kind,))
    marked = checkpoint(network, policy=policies.sqrt())
    with jax.set_mesh(mesh):
        x = jax.device_put(np.ones((8, 6)), NamedSharding(mesh, PartitionSpec("d")))
        everywhere = NamedSharding(mesh, PartitionSpec())
        w = W if weights == "of NumPy" else jax.device_put(W, everywhere)
        got, plain = (jax.jit(jax.grad(f))(w, x) for f in (marked, network))
    np.testing.assert_allclose(got, plain, rtol=1e-12)

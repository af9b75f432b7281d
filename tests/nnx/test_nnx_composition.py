"""`remat_scan` called again, uncompiled, with sharding names, and over another scan."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

import retape.nnx
from retape import UnsupportedError
from tests.nnx.stacks import WIDTH, Count, Tanh, batch, difference, waves


def test_a_second_call_traces_nothing() -> None:
    traced: list[int] = []

    @retape.nnx.remat_scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
    def f(x: jax.Array, layer: Any) -> jax.Array:
        traced.append(1)
        return layer(x)

    layers = Tanh(5)
    first = f(batch(), layers)
    count = len(traced)
    layers.weight[...] = 2 * layers.weight
    assert difference(f(batch(), layers), first) > 0.1
    assert len(traced) == count


def test_with_the_compiler_off_the_layers_run_one_by_one() -> None:
    seen: list[Any] = []

    @retape.nnx.remat_scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
    def f(x: jax.Array, layer: Any) -> jax.Array:
        seen.append(float(x[0, 0]))
        return layer(x)

    with jax.disable_jit():
        slow = f(batch(), Tanh(5))
    assert len(seen) == 5
    assert difference(slow, loss_free(Tanh(5))) < 1e-12


def loss_free(layers: Any) -> jax.Array:
    x = batch()
    for weight in layers.weight[...]:
        x = jnp.tanh(x @ weight)
    return x


def test_names_of_sharded_axes_are_those_that_nnx_scan_leaves() -> None:
    """A layer sees its own axes; the stack has one more, which has a name."""

    def after(scan: Any) -> Any:
        layers = Tanh(5)
        layers.weight = nnx.Param(
            waves(5, WIDTH, WIDTH),
            out_sharding=("layers", "in", "out"),
            eager_sharding=False,
        )
        layers.count = Count(jnp.zeros(5), eager_sharding=False)
        seen: list[Any] = []

        def f(x: jax.Array, layer: Any) -> jax.Array:
            seen.append(layer.weight.out_sharding)
            return layer(x)

        scan(
            f,
            in_axes=(nnx.Carry, 0),
            out_axes=nnx.Carry,
            transform_metadata={nnx.PARTITION_NAME: "layers"},
        )(batch(), layers)
        return set(seen), layers.weight.out_sharding

    assert after(nnx.scan) == ({("in", "out")}, ("layers", "in", "out"))
    assert after(retape.nnx.remat_scan) == after(nnx.scan)


def test_a_scan_of_another_make_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a later Flax might build one: with no loop at its top."""
    monkeypatch.setattr(nnx, "scan", lambda f, **_: lambda x, layers: x + 1)
    run = retape.nnx.remat_scan(lambda x, layer: layer(x))
    with pytest.raises(UnsupportedError, match="a program with 0 scans at its top"):
        run(batch(), Tanh(5))

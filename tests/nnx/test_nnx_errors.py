"""What cannot be is refused with its name, the reason and what to do."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest
from flax import linen, nnx

import retape
import retape.nnx
from tests.nnx.stacks import WIDTH, Tanh, batch, waves

STACKED = {"in_axes": (nnx.Carry, 0), "out_axes": nnx.Carry}


def call(x: Any, layer: Any) -> Any:
    return layer(x)


def test_stacks_in_a_list_are_fine() -> None:
    def both(x: Any, layers: Any) -> Any:
        return layers[1](layers[0](x))

    f = retape.nnx.remat_scan(both, **STACKED)
    assert f(batch(), [Tanh(3), Tanh(3)]).shape == batch().shape


def test_random_streams_that_are_not_split_are_said_to_be_so() -> None:
    @retape.nnx.remat_scan(in_axes=(nnx.Carry, 0, 0), out_axes=nnx.Carry)
    def f(x: Any, layer: Any, rngs: Any) -> Any:
        return layer(x) * rngs.noise.uniform(x.shape)

    said = r"args\[2\]\['noise'\]\['count'\] has shape.*nnx.split_rngs\(splits"
    with pytest.raises(retape.PlanError, match=said):
        f(batch(), Tanh(5), nnx.Rngs(noise=1))


def test_state_that_is_not_one_for_each_layer_is_named() -> None:
    layers = Tanh(5)
    layers.scale = nnx.Param(jnp.float64(2.0))
    said = r"args\[1\]\['scale'\] has shape \(\) and so no axis 0.*None in in_axes"
    with pytest.raises(retape.PlanError, match=said):
        retape.nnx.remat_scan(call, **STACKED)(batch(), layers)


def sows(x: Any, layer: Any) -> Any:
    layer.seen = nnx.Intermediate(x.mean())
    return layer(x)


ONLY_PARAMS = nnx.StateAxes({nnx.Param: 0})
REFUSED_BY_THEM = {
    "a length that disagrees": (call, {"length": 6}, "length.*6.*disagrees.*5"),
    "too many axes": (call, {"in_axes": (nnx.Carry, 0, 0)}, "length 3.*length 2"),
    "a kind of state without an axis": (
        sows,
        {"in_axes": (nnx.Carry, ONLY_PARAMS)},
        "No axis found for path=.'seen'",
    ),
    "a carry of another type": (
        lambda x, layer: layer(x).astype(jnp.float32),
        {},
        r"carry.*float64\[4,6\].*float32\[4,6\]",
    ),
    "a carry of another shape": (
        lambda x, layer: layer(x)[:2],
        {},
        r"carry.*float64\[4,6\].*float64\[2,6\]",
    ),
    "a carry of another structure": (
        lambda x, layer: (layer(x), x),
        {},
        "Carry references must be the same",
    ),
}


@pytest.mark.parametrize("name", REFUSED_BY_THEM)
def test_what_jax_and_flax_refuse_is_refused_in_their_words(name: str) -> None:
    body, options, said = REFUSED_BY_THEM[name]
    f = retape.nnx.remat_scan(body, **{**STACKED, **options})
    with pytest.raises((TypeError, ValueError), match=f"(?s){said}"):
        f(batch(), Tanh(5))


def test_an_error_of_the_layer_s_own_is_left_alone() -> None:
    def fails(x: Any, layer: Any) -> Any:
        raise ValueError("the layer's own")

    f = retape.nnx.remat_scan(fails, **STACKED)
    with pytest.raises(ValueError, match="^the layer's own"):
        f(batch(), Tanh(5))


def test_what_flax_refuses_is_refused_in_its_words() -> None:
    with pytest.raises(ValueError, match="the other must also have Carry"):
        retape.nnx.remat_scan(call, in_axes=(nnx.Carry, 0), out_axes=0)
    with pytest.raises(ValueError, match="bound method"):
        retape.nnx.remat_scan(Tanh(5).__call__, in_axes=(nnx.Carry,))


@pytest.mark.parametrize("option", ["ref", "hijax"])
def test_a_variable_that_is_changed_in_place_is_refused(option: str) -> None:
    layers = Tanh(5)
    layers.weight = nnx.Param(waves(5, WIDTH, WIDTH), **{option: True})
    said = rf"args\[1\]\['weight'\] is a Variable made with {option}=True"
    with pytest.raises(retape.UnsupportedError, match=said):
        retape.nnx.remat_scan(call, **STACKED)(batch(), layers)


def test_a_bridged_layer_without_parameters_is_named() -> None:
    layers = nnx.bridge.ToNNX(linen.Dense(WIDTH), rngs=nnx.Rngs(0))
    f = retape.nnx.remat_scan(call, **STACKED, length=5)
    said = r"args\[1\]\['to_nnx__rngs'\].* has shape \(\) and so no axis 0.*lazy_init"
    with pytest.raises(retape.PlanError, match=said):
        f(batch(), layers)

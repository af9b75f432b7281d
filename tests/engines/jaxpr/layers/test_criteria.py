"""What the documents that asked for these tools call success, one test for each."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import retape.jax
from retape.jax import policies
from tests.engines.jaxpr.support.networks import (
    layer,
    temp_bytes,
    weights,
    work,
)
from tests.engines.jaxpr.support.seams import nest

# Why layers are recomputed -----------------------------------------------------------


def deep(h: Any, w: Any) -> tuple[Any, None]:
    return jnp.tanh(jnp.sin(h) @ w), None


def segmented_bytes(length: int, segment: int) -> int:
    def run(w: Any, h: Any) -> Any:
        return retape.jax.scan(deep, h, w, segment_length=segment)[0].sum()

    w = jax.ShapeDtypeStruct((length, 4, 4), jnp.float32)
    h = jax.ShapeDtypeStruct((512, 4), jnp.float32)
    compiled = jax.jit(jax.grad(run)).lower(w, h).compile()
    return compiled.memory_analysis().temp_size_in_bytes


@pytest.mark.slow
def test_segments_of_the_square_root_take_the_least_memory() -> None:
    taken = {s: segmented_bytes(100, s) for s in (5, 10, 20, 50)}
    assert min(taken, key=lambda s: taken[s]) == 10
    assert nest(100, 2).factors == (10, 10)
    # L / s + s of the states, and what one layer needs.
    state = 512 * 4 * 4
    assert (taken[50] - taken[10]) / state > 0.9 * (52 - 20)


@functools.cache
def found(way: str) -> tuple[int, int]:
    """Work and temporaries of the gradient of four layers in a loop."""
    w = jax.tree.map(lambda *v: jnp.stack(v), *weights(4, 16))
    h = jnp.ones((128, 16))
    loops: dict[str, Any] = {
        "stored": lax.scan,
        "all run again": functools.partial(retape.jax.scan, levels=1),
        "selective": functools.partial(
            retape.jax.scan, levels=1, policy=policies.selective()
        ),
    }

    def whole(w: Any, h: Any) -> Any:
        body = lambda h, w: (layer(h, w), None)  # noqa: E731
        return (loops[way](body, h, w)[0] ** 2).mean()

    return work(jax.grad(whole), w, h), temp_bytes(whole, w, h)


@pytest.mark.slow
def test_one_more_forward_pass_is_a_third_of_the_work() -> None:
    assert 1.25 < found("all run again")[0] / found("stored")[0] < 1.4


@pytest.mark.slow
def test_selective_saving_gets_memory_for_less_than_the_full_bill() -> None:
    (all_work, most), (less_work, less), (full_work, least) = (
        found(way) for way in ("stored", "selective", "all run again")
    )
    assert less_work - all_work < 0.8 * (full_work - all_work)
    assert least < less < 0.5 * most

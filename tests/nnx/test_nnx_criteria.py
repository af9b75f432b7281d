"""What a study of scans over NNX layers asked for, one test for each."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

import retape.nnx
from tests.engines.jaxpr.support.networks import work
from tests.nnx.stacks import WIDTH, Tanh, batch

STACKED: dict[str, Any] = {"in_axes": (nnx.Carry, 0), "out_axes": nnx.Carry}
LAYERS = 48


def forward(scan: Any, **options: Any) -> Any:
    @scan(**STACKED, **options)
    def apply_layers(carry: Any, layer: Any) -> Any:
        return layer(carry)

    return apply_layers


def gradient(scan: Any, **options: Any) -> Any:
    f = forward(scan, **options)
    return jax.jit(
        nnx.grad(lambda layers, x: jnp.sum(f(x, layers) ** 2), argnums=(0, 1))
    )


def taken(scan: Any, **options: Any) -> float:
    """Temporaries of the gradient, in carries."""
    tokens, width = 4096, 6
    x = jax.ShapeDtypeStruct((tokens, width), jnp.float64)
    compiled = gradient(scan, **options).lower(Tanh(LAYERS), x).compile()
    return compiled.memory_analysis().temp_size_in_bytes / (8 * tokens * width)


@pytest.mark.parametrize("segment", [6, 8])
def test_segments_keep_the_carries_at_their_ends(segment: int) -> None:
    """48 / s carries at the ends of segments, s inside one; not 48."""
    marked = nnx.remat(lambda x, layer: layer(x))

    def remat(*_: Any, **options: Any) -> Any:
        return lambda f: nnx.scan(marked, **options)

    assert taken(remat) > LAYERS
    # Beside them, one layer's own.
    assert (
        taken(retape.nnx.remat_scan, segment_length=segment)
        < 48 / segment + segment + 6
    )


@pytest.mark.slow
def test_a_snapshot_more_is_one_carry_more() -> None:
    """No stage of many layers, whose tape would take twice as much again."""
    few, many = (
        taken(retape.nnx.remat_scan, plan=retape.fixed_space(snapshots=d))
        for d in (3, 14)
    )
    assert 10 < many - few < 11.1
    assert few < 3 + 7


def test_segments_run_each_layer_at_most_twice_more() -> None:
    graph, state = nnx.split(Tanh(LAYERS))

    def slope(scan: Any, **options: Any) -> Any:
        f = forward(scan, **options)
        value = lambda s, x: jnp.sum(f(x, nnx.merge(graph, s)) ** 2)  # noqa: E731
        return jax.grad(value)

    once = work(lambda s, x: forward(nnx.scan)(x, nnx.merge(graph, s)), state, batch())
    plain = work(slope(nnx.scan), state, batch())
    ours = work(slope(retape.nnx.remat_scan, segment_length=8), state, batch())
    # A quarter of a run is for sums of gradients and what else is small.
    assert plain < ours < plain + 2.25 * once


def bytes_of(**options: Any) -> int:
    graph, state = nnx.split(Tanh(LAYERS))
    f = forward(retape.nnx.remat_scan, **options)
    value = lambda s, x: jnp.sum(f(x, nnx.merge(graph, s)) ** 2)  # noqa: E731
    x = jnp.ones((512, WIDTH))
    program = jax.jit(jax.grad(value)).lower(state, x).compile()
    report: Any = program.memory_analysis()
    return report.temp_size_in_bytes


@pytest.mark.slow
def test_memory_chooses_how_the_stack_is_reversed() -> None:
    most, least = bytes_of(levels=1), bytes_of(levels=2)
    assert least < 0.7 * most
    # The stack's gradient alone is what the budget is for: about a carry is beside it.
    between = (most + least) // 2
    assert bytes_of(memory=between) <= between
    assert bytes_of(memory="1 GB") >= most
    with pytest.raises(retape.BudgetError, match="Pass at least") as error:
        bytes_of(memory=100)
    assert 100 < (error.value.least or 0) < between

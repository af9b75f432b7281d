"""The planner: predictions against the compiler's figures, the choice, the refusals."""

from __future__ import annotations

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import retape
import retape.jax
from retape.viz import draw_tradeoff


def looped(w: Any, h: Any) -> Any:
    body = lambda h, w: (jnp.tanh(jnp.sin(h) @ w), None)  # noqa: E731
    return (lax.scan(body, h, w)[0] ** 2).mean()


def arguments() -> tuple[Any, Any]:
    return jnp.ones((24, 8, 8)) / 8, jnp.ones((256, 8))


def total(fun: Any, *args: Any) -> int:
    memory = jax.jit(jax.value_and_grad(fun)).lower(*args).compile().memory_analysis()
    return (
        memory.temp_size_in_bytes
        + memory.argument_size_in_bytes
        + memory.output_size_in_bytes
    )


@functools.cache
def found() -> retape.jax.LayerPlan:
    structs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arguments()]
    return retape.jax.plan(looped, *structs, memory="400 kB")


def test_the_prediction_of_the_chosen_way_is_within_a_tenth() -> None:
    marked = found().apply(looped)
    taken = total(marked, *arguments())
    assert abs(found().chosen.peak_bytes - taken) <= 0.1 * taken
    assert taken <= 400_000
    got = jax.jit(jax.grad(marked))(*arguments())
    want = jax.grad(looped)(*arguments())
    np.testing.assert_allclose(got, want, rtol=1e-10)


def test_the_prediction_as_it_is_is_within_a_tenth() -> None:
    as_it_is = found().candidates[0]
    taken = total(looped, *arguments())
    assert abs(as_it_is.peak_bytes - taken) <= 0.1 * taken
    assert as_it_is.extra == 0


def test_the_cheapest_that_fits_is_chosen() -> None:
    table = found()
    fitting = [c for c in table.candidates if c.peak_bytes <= table.memory]
    assert not table.fits
    assert table.chosen.extra == min(c.extra for c in fitting)
    text = str(table)
    assert f"{table.chosen.name} keeps to" in text and "<- chosen" in text


def test_what_fits_as_it_is_is_left_alone() -> None:
    one = retape.jax.LayerPlan(10**9, found().candidates, found().candidates[0])
    assert one.fits
    assert "do nothing. You would pay up to" in str(one)
    assert "compute for memory that you do not need." in str(one)


def test_points_are_for_a_plot() -> None:
    pytest.importorskip("matplotlib")
    figure = draw_tradeoff(found().points, found().memory)
    (axes,) = figure.axes
    assert len(axes.collections[0].get_offsets()) == len(found().candidates)


def test_too_little_memory_names_the_least() -> None:
    with pytest.raises(retape.BudgetError, match="the least of the ways") as caught:
        retape.jax.plan(looped, *arguments(), memory="1 kB")
    named = re.search(r"tried is (\d+) bytes", str(caught.value))
    assert named is not None
    enough = int(named.group(1))
    chosen = retape.jax.plan(looped, *arguments(), memory=enough).chosen
    assert chosen.peak_bytes <= enough


def test_a_function_that_is_no_scalar_is_refused() -> None:
    with pytest.raises(retape.GradientTypeError, match="Return the loss alone"):
        retape.jax.plan(lambda x: x, jnp.ones(3), memory="1 GB")

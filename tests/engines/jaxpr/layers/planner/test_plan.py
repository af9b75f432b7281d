"""The planner: predictions against the compiler's figures, the choice, the refusals."""

from __future__ import annotations

import functools
import gc
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import retape
import retape.jax
from retape.jax import checkpoint
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
def found() -> Any:
    structs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arguments()]
    return retape.jax.advise(looped, *structs, memory="400 kB")


@pytest.mark.slow
def test_predictions_are_within_a_tenth_and_the_cheapest_that_fits_is_chosen() -> None:
    table = found()
    marked, as_it_is = table.apply(looped), table.candidates[0]
    taken = total(marked, *arguments())
    assert abs(table.chosen.peak_bytes - taken) <= 0.1 * taken
    assert taken <= table.memory == 400_000
    got = jax.jit(jax.grad(marked))(*arguments())
    np.testing.assert_allclose(got, jax.grad(looped)(*arguments()), rtol=1e-10)
    taken = total(looped, *arguments())
    assert abs(as_it_is.peak_bytes - taken) <= 0.1 * taken
    assert as_it_is.extra == 0
    fitting = [c for c in table.candidates if c.peak_bytes <= table.memory]
    assert not table.fits
    assert table.chosen.extra == min(c.extra for c in fitting)
    assert f"{table.chosen.name} keeps to" in str(table)
    assert "<- chosen" in str(table)
    roomy = type(table)(10**9, table.candidates, as_it_is)
    assert roomy.fits and "do nothing. You would pay up to" in str(roomy)
    assert "compute for memory that you do not need." in str(roomy)


@pytest.mark.slow
def test_points_are_for_a_plot() -> None:
    pytest.importorskip("matplotlib")
    figure = draw_tradeoff(found().points, found().memory)
    (axes,) = figure.axes
    assert len(axes.collections[0].get_offsets()) == len(found().candidates)


def refused(fun: Any, *args: Any) -> int:
    """The least that a plan for one byte names."""
    with pytest.raises(retape.BudgetError, match="the least of all ways is") as caught:
        retape.jax.advise(fun, *args, memory=1)
    named = re.search(r"ways is (\d+) bytes", str(caught.value))
    assert named is not None
    return int(named.group(1))


def unrolled(w: Any, h: Any) -> Any:
    for i in range(w.shape[0]):
        h = jnp.tanh(jnp.sin(h) @ w[i])
    return (h**2).mean()


@pytest.mark.slow
@pytest.mark.parametrize("fun", [looped, unrolled])
def test_too_little_memory_names_the_least(fun: Any) -> None:
    args = jnp.ones((6, 8, 8)) / 8, jnp.ones((64, 8))
    least = refused(fun, *args)
    chosen = retape.jax.advise(fun, *args, memory=least).chosen
    assert chosen.peak_bytes == least
    assert total(checkpoint(fun, policy=chosen.policy), *args) == least


@pytest.mark.slow
def test_a_way_that_cannot_be_gone_is_in_the_table_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As on a platform whose devices do not reach the host's memory.
    monkeypatch.setattr(
        "retape.engines.jaxpr.primitives._host_buffer.HOST", "elsewhere"
    )
    args = jnp.ones((3, 4, 4)), jnp.ones((8, 4))
    table = retape.jax.advise(looped, *args, memory="1 GB")
    ((name, why),) = table.refused
    assert name == "offload" and "needs memory of kind 'elsewhere'" in why
    assert f"not possible: {why}" in str(table)
    assert name not in [c.name for c in table.candidates]


@pytest.mark.slow
def test_nothing_is_allocated() -> None:
    # 100 layers of 4 GB each, and an input of 4 GB.
    w = jax.ShapeDtypeStruct((100, 2**15, 2**15), jnp.float32)
    h = jax.ShapeDtypeStruct((2**15, 2**15), jnp.float32)
    gc.collect()
    before = len(jax.live_arrays())
    table = retape.jax.advise(looped, w, h, memory="2 TiB")
    assert table.candidates[0].peak_bytes > 800 * 2**30
    assert len(jax.live_arrays()) == before


def test_explain_takes_types_for_arrays() -> None:
    w, h = arguments()
    types = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in (w, h)]
    assert retape.jax.explain(looped, *types) == retape.jax.explain(looped, w, h)
    assert retape.jax.explain(looped, types[0], h, argnums=1).steps is not None


@pytest.mark.slow
def test_what_no_step_machine_runs_is_in_the_table_as_well() -> None:
    @jax.custom_vjp
    def double(x: Any) -> Any:
        return 2 * x

    def forwards(x: Any) -> Any:
        jax.debug.print("at it")
        return 2 * x, None

    double.defvjp(forwards, lambda _, g: (2 * g,))

    def loss(x: Any) -> Any:
        body = lambda c, _: (double(jnp.sin(c @ c)), None)  # noqa: E731
        return lax.scan(body, x, None, length=40)[0].sum()

    # The step machine is a last resort, which must not end the search.
    with pytest.raises(retape.BudgetError, match="does not suffice.* by segments"):
        retape.jax.advise(loss, jnp.ones((8, 8)), memory="1 kB")


@pytest.mark.slow
def test_what_a_loss_returns_beside_its_value_goes_along() -> None:
    def loss(w: Any, x: Any) -> Any:
        layer = lambda h, _: (jnp.tanh(h @ w), None)  # noqa: E731
        h = jax.lax.scan(layer, x, length=50)[0]
        return (h**2).sum(), {"last": h}

    args = jnp.eye(8) / 2, jnp.ones((64, 8))
    with pytest.raises(retape.GradientTypeError, match="has_aux=True"):
        retape.jax.advise(loss, *args, memory="1 GiB")
    found = retape.jax.advise(loss, *args, memory="60 kB", has_aux=True)
    assert not found.fits
    slope, aux = jax.grad(found.apply(loss), has_aux=True)(*args)
    want, last = jax.grad(loss, has_aux=True)(*args)
    np.testing.assert_allclose(slope, want, rtol=1e-6)
    np.testing.assert_allclose(aux["last"], last["last"], rtol=1e-6)


def steps_of_training() -> tuple[Any, Any, tuple[Any, ...]]:
    """A loss, a step with accumulation, momentum and metrics, and its arguments."""

    def loss(w: Any, batch: Any) -> Any:
        x = batch
        for each in w:
            x = x + jnp.tanh(jnp.sin(x @ each))
        return (x**2).mean(), {"last": x.sum()}

    def step(loss: Any, w: Any, momentum: Any, batches: Any) -> Any:
        def one(total: Any, batch: Any) -> Any:
            (value, _), slope = jax.value_and_grad(loss, has_aux=True)(w, batch)
            return jax.tree.map(jnp.add, total, slope), value

        zeros = jax.tree.map(jnp.zeros_like, w)
        slope, values = lax.scan(one, zeros, batches)
        momentum = jax.tree.map(lambda m, s: 0.9 * m + s, momentum, slope)
        w = jax.tree.map(lambda p, m: p - 0.1 * m, w, momentum)
        return w, momentum, values

    w = [jnp.eye(16) * 0.3] * 4
    return loss, step, (w, w, jnp.ones((2, 128, 16)))


@pytest.mark.slow
def test_a_whole_step_of_training_is_what_must_fit() -> None:
    loss, step, args = steps_of_training()

    def compiled(loss: Any) -> Any:
        run = functools.partial(step, loss)
        return jax.jit(run, donate_argnums=(0, 1)).lower(*args).compile()

    def peak(loss: Any) -> int:
        told = compiled(loss).memory_analysis()
        moved = told.output_size_in_bytes - told.alias_size_in_bytes
        return told.temp_size_in_bytes + told.argument_size_in_bytes + moved

    options: Any = {"step": step, "donate_argnums": (0, 1), "has_aux": True}
    most = peak(loss)
    memory = round(0.75 * most)
    found = retape.jax.advise(loss, *args, memory=memory, **options)
    assert found.candidates[0].peak_bytes == most
    assert not found.fits
    assert peak(found.apply(loss)) == found.chosen.peak_bytes <= memory
    # Without donation the results take a place of their own.
    kept = retape.jax.advise(loss, *args, memory="1 GB", has_aux=True, step=step)
    assert kept.chosen.peak_bytes > most


# Loops of unknown length ------------------------------------------------------------


def settle(x: Any) -> Any:
    def body(v: Any) -> Any:
        return v - 0.01 * jnp.sin(v)

    return jnp.sum(lax.while_loop(lambda v: jnp.max(v) > 0.5, body, x))


@pytest.mark.slow
def test_a_loop_of_unknown_length_is_given_the_plan_that_uses_the_budget() -> None:
    x = jnp.linspace(0.5, 2.0, 1000)
    found = retape.jax.advise(settle, x, memory="300 kB")
    assert not found.fits and found.chosen.name == "binomial"
    assert 150_000 < found.chosen.peak_bytes <= 300_000
    assert "unknown" in str(found) and "binomial keeps to" in str(found)
    got = jax.jit(retape.jax.grad(settle, plan=found.as_plan()))(x)
    slope = jax.jvp(settle, (x,), (x,))[1]
    np.testing.assert_allclose(jnp.vdot(got, x), slope, rtol=1e-11)
    with pytest.raises(retape.BudgetError, match="`memory='30 kB'` does not suffice"):
        retape.jax.advise(settle, x, memory="30 kB")


def test_where_it_does_not_pay_the_advice_is_to_do_nothing() -> None:
    found = retape.jax.advise(lambda x: jnp.sum(jnp.tanh(x)), jnp.ones(9), memory="1MB")
    assert found.fits and "It fits as it is: do nothing." in str(found)

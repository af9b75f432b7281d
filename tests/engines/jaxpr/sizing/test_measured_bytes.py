"""Budgets that leave few snapshots: the compiled sweep says how many there may be."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import retape
import retape.jax

X = jnp.linspace(1.0, 2.0, 1000, dtype=jnp.float32)


def loss(x: Any, steps: Any) -> Any:
    """Cheap steps over a thousand floats, their number known or not."""

    def body(_: Any, x: Any) -> Any:
        return jnp.roll(x * jnp.cos(jnp.sqrt(jnp.sum(x * x)) * 0.01), 1)

    return jnp.sum(jax.lax.fori_loop(0, steps, body, x) * jnp.arange(1000.0))


def taken(fun: Any, *args: Any) -> int:
    report = jax.jit(fun).lower(*args).compile().memory_analysis()
    assert report is not None
    return report.temp_size_in_bytes


@pytest.mark.slow
@pytest.mark.parametrize("known", [True, False])
def test_a_small_budget_holds_and_is_used_up(known: bool) -> None:
    budget, capsule = 70_000, 4096
    fun = (lambda x, _: loss(x, 200)) if known else loss
    gradient = retape.jax.grad(fun, plan=retape.within(budget))
    assert budget - 2 * capsule < taken(gradient, X, 200) <= budget
    plain = jax.grad(lambda x: loss(x, 200))
    with jax.enable_x64(True):
        exact = plain(np.asarray(X, np.float64))
    # Single precision is off by 2e-6 of the largest entry, with or without us.
    errors = [np.max(np.abs(g - exact)) for g in (gradient(X, 200), plain(X))]
    assert exact.dtype == np.float64
    assert errors[0] <= 1.5 * errors[1] < 5e-6 * np.max(np.abs(exact))


def test_estimates_alone_would_leave_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that tells no bytes, as some platforms' do."""
    gradient = retape.jax.grad(lambda x: loss(x, 200), plan=retape.within(70_000))
    with monkeypatch.context() as patch:
        patch.setattr("jax.stages.Compiled.memory_analysis", lambda _: None)
        lowered = jax.jit(gradient).lower(X)
    assert lowered.compile().memory_analysis().temp_size_in_bytes < 60_000


def short(x: Any) -> Any:
    return jnp.sum(jax.lax.fori_loop(0, 100, lambda _, x: jnp.sin(x) * 1.01, x))


def halved(x: Any) -> Any:
    """It ends when the data say."""
    return jnp.sum(jax.lax.while_loop(lambda v: v[0] < 5, lambda v: v * 1.5, x))


def deep(x: Any) -> Any:
    """Layers that are cut between their operations; each tapes more than a state."""

    def layer(x: Any, w: Any) -> Any:
        return jnp.cos(jnp.sin(jnp.outer(x, w) * x[:, None]).sum(1) * x), None

    w = jnp.linspace(0.1, 1.0, 6 * 50, dtype=jnp.float32).reshape(6, -1)
    return jnp.sum(jax.lax.scan(layer, x, w)[0])


@pytest.mark.parametrize(
    "fun",
    [
        pytest.param(lambda x: loss(x, 200), id="many steps", marks=pytest.mark.slow),
        short,
        halved,
        pytest.param(deep, marks=pytest.mark.slow),
    ],
)
def test_the_least_budget_that_an_error_names_is_enough(fun: Any) -> None:
    def gradient(budget: int) -> Any:
        return retape.jax.grad(fun, plan=retape.within(budget))

    with pytest.raises(retape.BudgetError, match="is too little") as raised:
        jax.eval_shape(gradient(100), X)
    least = raised.value.least
    assert least is not None and f"`retape.within({least})`" in str(raised.value)
    assert taken(gradient(least), X) <= least
    with pytest.raises(retape.BudgetError, match=f"take {least} bytes"):
        jax.eval_shape(gradient(least - 1), X)


@pytest.mark.parametrize("fun", [short, pytest.param(halved, marks=pytest.mark.slow)])
def test_budgets_of_the_form_of_a_gpu_are_held_from_the_least_on(fun: Any) -> None:
    """By what this machine's compiler reports of it."""

    def bytes_by(plan: retape.Plan) -> int:
        return taken(retape.jax.grad(fun, plan=plan, loops="device"), X)

    with pytest.raises(retape.BudgetError) as raised:
        bytes_by(retape.within(1))
    least = raised.value.least
    assert least
    plans = [retape.fixed_space(snapshots=d, stage=1) for d in (1, 2)]
    assert least <= 1.05 * min(map(bytes_by, plans))
    for budget in (least, 3 * least):
        assert bytes_by(retape.within(budget)) <= budget


@pytest.mark.slow
def test_a_short_loop_is_divided_where_its_residuals_do_not_fit() -> None:
    # 400 kB of residuals: with memory to spare one operation that stores them all.
    roomy = retape.jax.grad(short, plan=retape.within(1_000_000))
    tight = retape.jax.grad(short, plan=retape.within(60_000))
    assert taken(roomy, X) > 400_000
    assert taken(tight, X) <= 60_000
    np.testing.assert_array_equal(tight(X), jax.grad(short)(X))


def layers(width: int) -> tuple[Any, Any, Any]:
    """A stack of layers: work grows with the square of the width, the tape does not."""

    def fun(w: Any, x: Any) -> Any:
        body = lambda x, w: (jnp.tanh(jnp.sin(jnp.exp(-x)) @ w), None)  # noqa: E731
        return jnp.sum(jax.lax.scan(body, x, w)[0])

    struct = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.float32)
    return fun, struct((40, width, width)), struct((4096, width))


@pytest.mark.parametrize(("width", "stored"), [(64, False), (2048, True)])
def test_what_is_dearer_to_store_than_to_run_again_is_not_stored(
    width: int, stored: bool
) -> None:
    fun, w, x = layers(width)
    plenty = retape.within(100 * 40 * 4096 * width)
    told = retape.jax.explain(fun, w, x, plan=plenty)
    assert (told.stage > 1) == stored


def test_a_tape_that_stays_in_the_cache_costs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("retape.engines.jaxpr.sizing._cost_model.CACHE", 1 << 40)
    fun, w, x = layers(64)
    assert retape.jax.explain(fun, w, x, plan=retape.within("2 GB")).stage > 1

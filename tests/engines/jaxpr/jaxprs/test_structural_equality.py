"""Equal stretches are found to be so, and stretches that differ a little are not."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from retape.engines.jaxpr.calls import _rerun
from retape.engines.jaxpr.jaxprs import _structural_equality as _alike
from retape.engines.jaxpr.jaxprs._structural_equality import alike, deduplicate
from retape.jax import checkpoint
from tests.engines.jaxpr.support.networks import (
    assert_near,
    layer,
    loss,
    start,
    weights,
)


def traced(f: Any, *args: Any) -> Any:
    return jax.make_jaxpr(f)(*(args or (jnp.ones(3),)))


def looped(step: float) -> Any:
    return lambda x: lax.fori_loop(0, 3, lambda i, v: jnp.sin(v) + step, x)


def test_two_traces_of_one_program_are_alike() -> None:
    w, h = weights(1)[0], start()
    first, second = (traced(lambda h, w: layer(h, w), h, w) for _ in range(2))
    assert first is not second and alike(first, second)
    assert deduplicate(second) is deduplicate(first)
    assert alike(traced(looped(1.0)), traced(looped(1.0)))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (jnp.sin, jnp.cos),
        (lambda x: x + 1.0, lambda x: x + 2.0),
        (lambda x: x * 0.0, lambda x: x * -0.0),
        (lambda x: (x - x[0])[0], lambda x: (x[0] - x)[0]),
        (lambda x: x[:2].sum(), lambda x: x[1:].sum()),
        (lambda x: (x, x + 1), lambda x: (x + 1, x)),
        (lambda x: x.sum(), lambda x: x.sum(keepdims=True)[0] + 0),
        (looped(1.0), looped(2.0)),
        (lambda x: x + np.arange(3.0), lambda x: x + np.arange(1.0, 4.0)),
    ],
)
def test_a_small_difference_is_seen(a: Any, b: Any) -> None:
    assert alike(traced(a), traced(a)) or traced(a).consts
    assert not alike(traced(a), traced(b))


def test_types_of_the_inputs_count() -> None:
    f = lambda x: x * 2  # noqa: E731
    assert not alike(traced(f, jnp.ones(3)), traced(f, jnp.ones(4)))
    assert not alike(traced(f, jnp.ones(3)), traced(f, jnp.ones(3, jnp.float32)))
    assert not alike(traced(f, 1.0), traced(f, jnp.ones(())))


def test_a_custom_rule_that_is_made_anew_is_another_one() -> None:
    def made(slope: float) -> Any:
        rule = jax.custom_jvp(lambda x: jnp.sin(x))
        rule.defjvp(lambda p, t: (jnp.sin(*p), slope * t[0]))
        return rule

    def value(x: Any) -> Any:
        return sum(checkpoint(made(slope), x).sum() for slope in (1.0, 2.0))

    assert not alike(traced(made(1.0)), traced(made(2.0)))
    assert_near(jax.grad(value)(jnp.ones(3)), 3 * jnp.ones(3))


@pytest.mark.slow
def test_equal_layers_are_differentiated_once() -> None:
    w, h = weights(6, 4), start(4)
    before = _rerun.rerun_program.cache_info().misses
    slope = jax.grad(lambda w, h: loss(checkpoint(layer), w, h))
    got = slope(w, h)
    assert _rerun.rerun_program.cache_info().misses - before <= 2
    assert_near(got, jax.grad(lambda w, h: loss(layer, w, h))(w, h))


def test_few_programs_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_alike, "_MOST_PROGRAMS", 2)
    monkeypatch.setattr(_alike, "_ALIKE", 2)
    monkeypatch.setattr(_alike, "_known_programs", type(_alike._known_programs)())
    for shape in range(1, 5):
        for step in (1.0, 2.0, 3.0):
            deduplicate(traced(lambda x, s=step: x + s, jnp.ones(shape)))
    assert [len(found) for found in _alike._known_programs.values()] == [2, 2]

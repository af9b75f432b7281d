"""The compiler is asked once for each program, and its answer is that program's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import retape
import retape.jax
from tests.engines.jaxpr.support.networks import compilations


def loss(w: Any, h: Any) -> Any:
    for i in range(w.shape[0]):
        h = jnp.tanh(jnp.sin(h) @ w[i])
    return (h**2).mean()


def types(width: int = 8, dtype: Any = jnp.float32) -> tuple[Any, Any]:
    shapes = (3, width, width), (32, width)
    w, h = (jax.ShapeDtypeStruct(s, dtype) for s in shapes)
    return w, h


def plan(memory: Any = "1 MB", *args: Any) -> Any:
    return retape.jax.advise(loss, *(args or types()), memory=memory)


@contextmanager
def unoptimized() -> Iterator[None]:
    name = "jax_disable_most_optimizations"
    was = jax.config.values[name]
    jax.config.update(name, not was)
    try:
        yield
    finally:
        jax.config.update(name, was)


@pytest.mark.slow
def test_another_budget_compiles_nothing_again() -> None:
    found: list[Any] = []
    retape.jax.clear_caches()
    once = compilations(lambda: found.append(plan()))
    assert once > 0
    least = min(c.peak_bytes for c in found[0].candidates)
    assert compilations(lambda: plan(least)) < once
    assert compilations(lambda: found.append(plan())) == 0
    assert found[0].candidates == found[1].candidates
    retape.jax.clear_caches()
    assert compilations(plan) == once


ANOTHER: dict[str, Callable[[], object]] = {
    "another width": lambda: plan("1 MB", *types(16)),
    "another type": lambda: plan("1 MB", *types(dtype=jnp.float64)),
    "another setting": lambda: unoptimized()(plan)(),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", ANOTHER)
def test_what_makes_another_program_is_another_question(what: str) -> None:
    plan()
    assert compilations(ANOTHER[what]) > 0

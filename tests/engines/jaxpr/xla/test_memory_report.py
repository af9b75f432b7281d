"""The compiler is asked once for each program, and its answer is that program's.

Whoever listens is told of each program that a search for a budget compiles.
"""

from __future__ import annotations

import logging
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


def looped(h: Any) -> Any:
    turn = lambda h: jnp.tanh(jnp.sin(h @ h) + 1.1 * h)  # noqa: E731
    return jnp.sum(jax.lax.while_loop(lambda h: h[0, 0] < 0.9, turn, h))


def policy() -> Any:
    w, h = (jnp.ones(t.shape, t.dtype) / 9 for t in types())
    return jax.grad(retape.jax.checkpoint(loss, policy=retape.within("7 kB")))(w, h)


SEARCHES: dict[str, Callable[[], Any]] = {
    "policy": policy,
    "plan": lambda: retape.jax.grad(looped, plan=retape.within("220 kB"))(
        jnp.eye(48) * 0.5
    ),
    "planner": plan,
}


@pytest.mark.slow
@pytest.mark.parametrize("search", SEARCHES)
def test_each_program_is_told(search: str, caplog: pytest.LogCaptureFixture) -> None:
    retape.jax.clear_caches()
    with caplog.at_level(logging.INFO, "retape.jax"):
        SEARCHES[search]()
    told = [r.getMessage() for r in caplog.records if r.name == "retape.jax"]
    assert told and all("compiled in" in text and "takes" in text for text in told)

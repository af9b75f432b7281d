"""The compiler is asked once for each program, and its answer is that program's."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import retape
import retape.jax
from retape.engines.jaxpr.xla import _memory_report
from retape.engines.jaxpr.xla._memory_report import memory_report

ROWS = jax.ShapeDtypeStruct((64, 32), jnp.float32)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A program for each time that the compiler was asked."""
    retape.jax.clear_caches()
    seen: list[Any] = []
    asked = _memory_report._reported

    def counted(program: Any) -> Any:
        seen.append(program)
        return asked(program)

    monkeypatch.setattr(_memory_report, "_reported", counted)
    return seen


def product(x: Any) -> Any:
    return (jnp.sin(x) @ jnp.cos(x).T).sum()


def test_it_is_what_the_compiler_says(compiled: list[Any]) -> None:
    report = memory_report(jax.grad(product), ROWS)
    told = jax.jit(jax.grad(product)).lower(ROWS).compile().memory_analysis()
    assert report is not None and len(compiled) == 1
    assert report.temp == told.temp_size_in_bytes > 0
    assert report.arguments == report.results == 64 * 32 * 4


def test_the_same_program_is_compiled_once(compiled: list[Any]) -> None:
    first = memory_report(product, ROWS)
    assert memory_report(lambda x: product(x), ROWS) == first
    # The name of a function is a part of its program's text.
    assert len(compiled) == 2
    assert memory_report(product, ROWS) == first
    assert len(compiled) == 2
    retape.jax.clear_caches()
    assert memory_report(product, ROWS) == first
    assert len(compiled) == 3


def test_what_makes_another_program_is_another_question(compiled: list[Any]) -> None:
    double = lambda x: 2 * x  # noqa: E731
    kept, given = memory_report(double, ROWS), memory_report(double, ROWS, donated=[0])
    assert kept is not None and given is not None
    assert (kept.results, given.results) == (64 * 32 * 4, 0)
    wide = memory_report(double, jax.ShapeDtypeStruct((64, 64), jnp.float32))
    assert wide is not None and wide.results == 2 * kept.results
    with jax.enable_x64(True):
        memory_report(double, jax.ShapeDtypeStruct((64, 32), jnp.float64))
    optimized = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", not optimized)
    try:
        memory_report(double, ROWS)
    finally:
        jax.config.update("jax_disable_most_optimizations", optimized)
    assert len(compiled) == 5


def test_the_oldest_are_forgotten(
    compiled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_memory_report, "_REMEMBERED", 2)
    for width in (1, 2, 3, 1):
        memory_report(product, jax.ShapeDtypeStruct((4, width), jnp.float32))
    assert len(compiled) == 4


def test_another_budget_compiles_nothing_again(compiled: list[Any]) -> None:
    def loss(w: Any, h: Any) -> Any:
        for i in range(w.shape[0]):
            h = jnp.tanh(jnp.sin(h) @ w[i])
        return (h**2).mean()

    args = jnp.ones((4, 8, 8)) / 8, jnp.ones((32, 8))
    first = retape.jax.plan(loss, *args, memory="1 MB")
    once = len(compiled)
    assert once > 0
    least = min(c.peak_bytes for c in first.candidates)
    assert retape.jax.plan(loss, *args, memory=least).candidates
    assert retape.jax.plan(loss, *args, memory="1 MB").candidates == first.candidates
    assert len(compiled) < 2 * once

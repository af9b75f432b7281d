"""Buffers filled row by row, in any order: kept once where none is read before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import retape
import retape.jax
from tests.engines.jaxpr.support import seams
from tests.engines.jaxpr.support.programs import assert_close

FEW = retape.fixed_space(snapshots=2, stage=2)


def filled(
    loops: Any,
    x: Any,
    *,
    rows: int = 12,
    start: int = 0,
    step: int = 1,
    blank: Any = jnp.zeros,
    write: Callable[[Any, Any, Any], Any] = lambda b, i, y: b.at[i].set(y),
    also: Callable[[Any, Any], Any] = lambda b, i: 0.0,
    low: float = 0.02,
) -> Any:
    """A trajectory of a loop of unknown length, preallocated, one row an iteration."""

    def body(c: Any) -> Any:
        i, v, b = c
        v = 0.6 * jnp.sin(v) + also(b, i)
        return i + step, v, write(b, i, v * x)

    begun = (start, x, blank((rows, 3)))
    i, v, b = loops.while_loop(lambda c: jnp.sum(c[1] ** 2) > low, body, begun)
    return jnp.sum(v) + jnp.sum(b**2 * jnp.arange(1.0, rows + 1)[:, None]) + i


X = np.asarray([0.9, -0.4, 1.3])


def either(b: Any, i: Any, y: Any, truth: Any) -> Any:
    """A row set twice, under conditions that exclude one another."""
    b = jnp.where(truth, b.at[i].set(y), b)
    return jnp.where(truth, b, b.at[i].set(2 * y))


def nearly_either(b: Any, i: Any, y: Any) -> Any:
    """The same, but for a difference that 32 bits do not hold: then both are set."""
    first, second = y[0], y[0] + 1e-12
    short = first.astype(np.float32) < second.astype(np.float32)
    b = jnp.where(first < second, b.at[i].set(y), b)
    return jnp.where(short, b, b.at[i].set(2 * y))


def far(i: Any, y: Any) -> Any:
    """A row far beyond the last one; but in 32 bits it is the first."""
    return jnp.where(y[0] > 0.1, jnp.int64(i), 2**32).astype(np.int32)


PROVED: dict[str, dict[str, Any]] = {
    "in turn": {},
    "fewer rows than trips": {"rows": 2},
    "not zeros": {"blank": jnp.ones},
    "minus zeros": {"blank": lambda shape: jnp.full(shape, -0.0)},
    "a number worked out": {"blank": lambda shape: jnp.full(shape, jnp.cos(0.0) / 3)},
    "a row that depends on the data": {
        "blank": lambda s: jnp.zeros(s).at[1].set(7.0).at[0].set(X),
        "start": 2,
    },
    "two rows at a time, one beyond the end": {
        "write": lambda b, i, y: b.at[i].set(y).at[i + 1].set(y * y),
        "step": 2,
        "rows": 5,
    },
    "one row or the other": {"write": lambda b, i, y: either(b, i, y, y[0] > 0.1)},
    "old or new": {"write": lambda b, i, y: jnp.where(y[0] > 0.1, b.at[i].set(y), b)},
    "what was there or new": {
        "write": lambda b, i, y: b.at[i].set(jnp.where(y[0] > 0.1, y, b[i]))
    },
    "a row or none": {
        "write": lambda b, i, y: b.at[jnp.where(y[0] > 0.1, i, 99)].set(y, mode="drop")
    },
    "two or none": {
        "write": lambda b, i, y: jnp.where(
            y[0] > 0.1, b.at[i].set(y).at[i + 1].set(-y), b
        ),
        "step": 2,
        "rows": 20,
    },
    "the last row again and again": {
        "write": lambda b, i, y: b.at[i].set(y, mode="clip"),
        "rows": 2,
    },
    "a slice at the end again": {
        "write": lambda b, i, y: jax.lax.dynamic_update_slice(b, y[None], (i, 0)),
        "rows": 2,
    },
    "two rows that overlap": {
        "write": lambda b, i, y: b.at[i].set(y).at[i + 1].set(y * y)
    },
    "a row that the data says was there": {
        "blank": lambda s: jnp.zeros(s).at[jnp.int32(3 * X[0])].set(X)
    },
    "on the spot": {"step": 0},
    "by nearly the same condition": {"write": nearly_either},
    "a number that its type does not hold": {
        "write": lambda b, i, y: b.at[far(i, y)].set(y, mode="drop")
    },
    "before the first row": {"write": lambda b, i, y: b.at[i - 1].set(y)},
    "now a number, now what moves": {
        "write": lambda b, i, y: b.at[i % 2].set(y).at[0].set(7.0)
    },
}


def snapshot_arrays(fun: Callable[[Any], Any]) -> list[tuple[int, ...]]:
    found = seams.compiled(fun, X, grain=seams.GRAIN).layout
    return [found.avals[p].shape for p in found.places("register")]


def check(fun: Callable[..., Any], options: dict[str, Any]) -> None:
    """Value and gradient, against forward mode."""

    def looped(x: Any) -> Any:
        return fun(jax.lax, x, **options)

    found = jax.jit(retape.jax.value_and_grad(looped, plan=FEW))(X)
    assert_close(found, jax.jit(lambda x: (looped(x), jax.jacfwd(looped)(x)))(X))


REFUSED: dict[str, dict[str, Any]] = {
    "a start that the data gives": {"blank": lambda shape: jnp.zeros(shape) + X},
    "added up": {"write": lambda b, i, y: b.at[i].add(y)},
    "read as a whole": {"also": lambda b, i: 0.001 * jnp.sum(b)},
    "read where it is not written yet": {"also": lambda b, i: 0.1 * b[i]},
    "an old copy is kept, too": {
        "write": lambda b, i, y: jnp.where(y > 0.1, b.at[i].set(y), b)
    },
    "another row or what is there": {
        "write": lambda b, i, y: b.at[i].set(jnp.where(y[0] > 0.1, y, b[i - 1]))
    },
}


OFTEN = (
    "fewer rows than trips",
    "not zeros",
    "minus zeros",
    "old or new",
    "what was there or new",
    "a row or none",
    "the last row again and again",
    "now a number, now what moves",
    "an old copy is kept, too",
    "another row or what is there",
)
"""On each change; the others each night."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in OFTEN else pytest.mark.slow)
        for name in PROVED | REFUSED
    ],
)
def test_a_buffer_is_kept_once_where_that_is_proved(name: str) -> None:
    options = (PROVED | REFUSED)[name]
    shape = (options.get("rows", 12), 3)
    held = snapshot_arrays(lambda x: filled(jax.lax, x, **options))
    assert (shape in held) == (name in REFUSED)
    check(filled, options)


def a_row_lost(made: Any) -> None:
    """One that the program returns is never written."""
    for block in seams.blocks_of(made.items):
        block.writes.clear()


def a_row_twice(made: Any) -> None:
    """Each row overwrites the first."""
    for block in seams.blocks_of(made.items):
        here = seams.Lit(np.int32(0), seams.Aval((), np.dtype(np.int32)))
        at = replace(block.writes[0].at, index=here) if block.writes else None
        block.writes[:] = [replace(w, at=at) for w in block.writes]


@pytest.mark.slow("a_row_twice")
@pytest.mark.parametrize("lie", [a_row_lost, a_row_twice])
def test_rows_in_the_wrong_place_would_be_seen(
    lie: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gradients above would show rows that are lost or overwrite one another."""
    monkeypatch.setattr("retape.engines.jaxpr._pipeline.check_promoted", none)
    with seams.lying("promote_buffers", lambda made, *_: lie(made)):
        with pytest.raises(AssertionError):
            check(filled, {})


def none(*_: Any) -> None:
    """In the place of a checker."""


@pytest.mark.slow
def test_the_compiled_program_needs_less() -> None:
    rows, plan = 500, retape.fixed_space(snapshots=16, stage=4)

    def bytes_of(write: Any) -> int:
        fun = lambda x: filled(jax.lax, x, rows=rows, write=write)  # noqa: E731
        compiled = jax.jit(retape.jax.grad(fun, plan=plan)).lower(X).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    one = rows * 3 * 8
    kept = bytes_of(lambda b, i, y: b.at[i].set(y))
    copied = bytes_of(lambda b, i, y: b.at[i].add(y))
    # Sixteen snapshots of it are gone; the buffer and its cotangent stay.
    assert copied - kept > 14 * one
    assert kept < 5 * one + 50_000

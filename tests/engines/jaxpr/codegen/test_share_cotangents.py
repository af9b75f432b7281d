"""Streams that hold rows, then their cotangents: where it is right, and only there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import retape
import retape.jax
from tests.engines.jaxpr.streams.test_fuse_row_loops import solved
from tests.engines.jaxpr.streams.test_promote_buffers import filled
from tests.engines.jaxpr.support import seams
from tests.engines.jaxpr.support.programs import assert_close
from tests.judges.pairwise import dealt

X = np.asarray([0.9, -0.4, 1.3])


def either(b: Any, i: Any, y: Any) -> Any:
    """Writes a row, or what the row was already."""
    return jnp.where(y[0] > 0.1, b.at[i].set(y), b)


def stacked(loops: Any, x: Any) -> Any:
    """The number of steps is known, and the rows are those of a `scan`."""
    turn = lambda v, k: (jnp.sin(v) * 1.1 + k, v * x)  # noqa: E731
    _, rows = loops.scan(turn, x, jnp.linspace(0.0, 0.1, 7))
    return jnp.sum(jnp.tanh(rows) * jnp.exp(rows))


def two(loops: Any, x: Any) -> Any:
    """One stream is summed up at the end, the other one before."""

    def turn(c: Any) -> Any:
        i, v, a, b = c
        return i + 1, jnp.sin(v) * 0.8, a.at[i].set(v * x), b.at[i].set(v * v)

    def on(c: Any) -> Any:
        return jnp.sum(c[1] ** 2) > 0.02

    _, v, a, b = loops.while_loop(
        on, turn, (0, x, jnp.zeros((20, 3)), jnp.ones((20, 3)))
    )
    more = lambda c: (c[0] + 0.1 * jnp.sum(jnp.exp(b)), c[1] + 1)  # noqa: E731
    s, _ = loops.while_loop(lambda c: c[0] < 90.0, more, (jnp.sum(v), 0))
    return s * jnp.sum(jnp.tanh(a))


def read_again(loops: Any, x: Any) -> Any:
    """A loop goes through the rows, and the program ends with them, too."""
    turn = lambda v, k: (jnp.sin(v) * 1.1 + k, v * x)  # noqa: E731
    v, rows = loops.scan(turn, x, jnp.linspace(0.0, 0.1, 7))
    again = lambda v, row: (jnp.sin(v * row) + x, v * row)  # noqa: E731
    v, more = loops.scan(again, v, rows)
    return jnp.sum(v) + jnp.sum(jnp.tanh(rows) * jnp.exp(more))


def begun(rows: Any) -> Any:
    """Rows that are there before."""
    return jnp.zeros(rows).at[0].set(X)


TURNED: dict[str, Callable[[Any, Any], Any]] = {
    "a row now and then": solved,
    "a row at every step": filled,
    "a row or none": lambda loops, x: filled(loops, x, write=either),
    "full of ones": lambda loops, x: filled(loops, x, blank=jnp.ones),
    "rows there before": lambda loops, x: filled(loops, x, blank=begun, start=1),
    "a scan": stacked,
    "one of two": two,
    "one that is not read before": read_again,
}


def turned(fun: Callable[[Any], Any]) -> int:
    return len(seams.compiled(fun, X).layout.turned)


PLANS = {
    "online": retape.fixed_space(snapshots=2, stage=2),
    "a stage of one step": retape.fixed_space(snapshots=2, stage=1),
    "the paper's": retape.fixed_space(snapshots=3, stage=3, split="treeverse"),
    "a single stage": retape.fixed_space(snapshots=2, stage=60),
}


@pytest.mark.slow(
    "rows there before-online", "one of two-the paper's", "full of ones-a single stage"
)
@pytest.mark.usefixtures("opened")
@pytest.mark.parametrize(("name", "plan"), dealt(list(TURNED), list(PLANS)))
def test_a_stream_makes_room_for_its_cotangent(
    name: str, plan: str, streams: int = 1
) -> None:
    run = lambda x: TURNED[name](lax, x)  # noqa: E731
    assert turned(run) == streams
    found = jax.jit(retape.jax.value_and_grad(run, plan=PLANS[plan]))(X)
    assert_close(found, jax.jit(lambda x: (run(x), jax.jacfwd(run)(x)))(X))


@pytest.mark.slow
@pytest.mark.usefixtures("opened")
def test_rows_of_each_device() -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("i",))
    part = retape.jax.checkpointed(lambda x: stacked(lax, x), plan=PLANS["online"])

    def whole(x: Any) -> Any:
        each = lambda x: lax.psum(part(x), "i")  # noqa: E731
        spec = jax.P("i")
        return jax.shard_map(each, mesh=mesh, in_specs=spec, out_specs=jax.P())(x)

    assert_close(jax.jit(jax.grad(whole))(X), jax.jacfwd(lambda x: stacked(lax, x))(X))


# Not turned -----------------------------------------------------------------------


def rows_of(x: Any, row: Any, *shape: int) -> Any:
    def turn(c: Any) -> Any:
        return c[0] + 1, jnp.sin(c[1]) * 0.8, c[2].at[c[0]].set(row(c[1]))

    def on(c: Any) -> Any:
        return jnp.sum(c[1] ** 2) > 0.02

    kind = int if shape == (20,) else float
    return lax.while_loop(on, turn, (0, x, jnp.zeros(shape, kind)))


def handed_back(x: Any) -> Any:
    rows = rows_of(x, lambda v: v * x, 20, 3)[2]
    return jnp.sum(jnp.tanh(rows)), rows


def of_integers(x: Any) -> Any:
    _, v, rows = rows_of(x, lambda v: jnp.sum(v > 0.1), 20)
    return jnp.sum(v) * jnp.sum(rows), rows


@pytest.mark.parametrize("fun", [handed_back, of_integers])
def test_rows_that_stay(fun: Any) -> None:
    """Rows that are handed back, and rows without a derivative."""
    assert turned(fun) == 0
    gradient = retape.jax.grad(fun, has_aux=True, plan=PLANS["online"])
    found, rows = jax.jit(gradient)(X)
    assert_close(rows, fun(X)[1])
    assert_close(found, jax.jacfwd(lambda x: fun(x)[0])(X))


# The tests above see it -----------------------------------------------------------


def none(*_: Any) -> None:
    """In the place of a checker."""


def all_of_them(layout: Any, *_: Any) -> Any:
    streams = frozenset(layout.places("resident")) & layout.active
    return replace(layout, turned=streams)


def test_a_stream_that_is_read_after_all_would_be_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check = test_a_stream_makes_room_for_its_cotangent
    name = "one that is not read before"
    with seams.lying("share_cotangents", all_of_them), seams.finely():
        with pytest.raises(AssertionError, match="a row read again"):
            check(name, "online")
        # What the checker would let through is wrong.
        monkeypatch.setattr("retape.engines.jaxpr._pipeline.check_sharing", none)
        with pytest.raises(AssertionError, match="Not equal"):
            check(name, "online", streams=2)


# What it is for -------------------------------------------------------------------


LOSSES: dict[str, Callable[[Any], Any]] = {
    "of each row": lambda rows: jnp.sum(jnp.tanh(rows)),
    "linear": lambda rows: jnp.sum(rows[::2] * 3.0),
    "two": lambda rows: jnp.sum(rows**2) * jnp.sum(rows[1:]),
}


@pytest.mark.slow("linear-2")
@pytest.mark.parametrize(("name", "stage"), dealt(list(LOSSES), [1, 2]))
def test_a_loss_of_saved_rows_needs_room_for_them_once(name: str, stage: int) -> None:
    """And for what the last block makes of them; not for cotangents beside them."""
    rows, size = 50, 1009

    def loss(x: Any) -> Any:
        def turn(c: Any) -> Any:
            i, v, rows = c
            return i + 1, jnp.sin(v) * 1.1, rows.at[i].set(v)

        going = lambda c: (c[0] < rows) & (c[1][0] < 5.0)  # noqa: E731
        found = lax.while_loop(going, turn, (0, x, jnp.zeros((rows, size))))
        return LOSSES[name](found[2])

    plan = retape.fixed_space(snapshots=3, stage=stage)
    compiled = jax.jit(retape.jax.grad(loss, plan=plan)).lower(jnp.ones(size)).compile()
    report = compiled.memory_analysis()
    assert report is not None
    stream, state = 8 * rows * size, 8 * size
    assert stream < report.temp_size_in_bytes < 2 * stream + 20 * state

"""Cutting long blocks: where, what it does to gradients, and what the checker catches.

The oracle is plain reverse mode of the program as it is.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import retape
import retape.jax
from tests.engines.jaxpr.support import seams
from tests.engines.jaxpr.support.programs import assert_close
from tests.engines.jaxpr.support.seams import Block, Var, blocks_of

SIZE = 32


def layer(x: Any, w: Any) -> Any:
    """Narrow at its ends and in its middle, wide in between."""
    x = x + jnp.tanh(x @ w["up"]) @ w["down"]
    return x * jnp.exp(-jnp.mean(jnp.sin(x @ w["up"]) ** 2, -1, keepdims=True))


def weights(layers: int, dtype: Any = np.float64) -> Any:
    draw = np.random.default_rng(0)
    shapes = {"up": (SIZE, 4 * SIZE), "down": (4 * SIZE, SIZE)}
    return {
        k: jnp.asarray(0.2 * draw.normal(size=(layers, *s)), dtype)
        for k, s in shapes.items()
    }


def scanned(w: Any, x: Any) -> Any:
    return jnp.sum(jax.lax.scan(lambda x, w: (layer(x, w), None), x, w)[0] ** 2)


def unrolled(w: Any, x: Any) -> Any:
    for i in range(w["up"].shape[0]):
        x = layer(x, {k: v[i] for k, v in w.items()})
    return jnp.sum(x**2)


def state(dtype: Any = np.float64, rows: int = 4) -> Any:
    return jnp.asarray(np.random.default_rng(1).normal(size=(rows, SIZE)), dtype)


def cut(piece: int | None = None) -> Any:
    """Two layers in a loop, cut into pieces that tape so many bytes."""
    return seams.compiled(scanned, weights(2), state(), piece=piece)


def labels(form: Any) -> list[Any]:
    return [b.label for b in blocks_of(form.items)]


# Where ------------------------------------------------------------------------------


@given(
    costs=st.lists(st.integers(0, 9), min_size=1, max_size=7),
    data=st.data(),
    limit=st.integers(1, 20),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_places_are_the_best_of_all(costs: Any, data: Any, limit: int) -> None:
    n = len(costs)
    widths = data.draw(st.lists(st.integers(0, 9), min_size=n + 1, max_size=n + 1))
    widths = [w * 1000 for w in widths]

    def price(bounds: Any) -> int:
        return 4096 * (len(bounds) - 1) + sum(widths[b] for b in bounds[1:-1])

    def allowed(bounds: Any) -> bool:
        return all(
            b - a == 1 or sum(costs[a:b]) <= limit
            for a, b in zip(bounds, bounds[1:], strict=False)
        )

    every = [
        [0, *inner, n]
        for k in range(n)
        for inner in combinations(range(1, n), k)
        if allowed([0, *inner, n])
    ]
    found = seams.best_bounds(costs, widths, limit)
    assert found in every
    assert price(found) == min(map(price, every))


def test_a_cut_falls_where_little_is_alive() -> None:
    whole = cut()
    limit = seams.max_tape_bytes(whole.program)
    after = cut(2 * limit // 3)
    # A block within the limit stays whole.
    assert len(after.code) > len(whole.code) == len(cut(limit).code)
    before, wide = whole.layout.capsule_bytes(), 4 * SIZE * 4 * 8
    # A state or two more, and none of the hidden values.
    assert after.layout.capsule_bytes() < before + wide
    assert after.program.length > whole.program.length


# What it does ------------------------------------------------------------------------


def checked(w: Any, x: Any) -> Any:
    """Third-party code has branches that only check; nothing reads what they give."""
    for _ in range(6):
        jax.lax.cond(jnp.sum(x) > 0, lambda: (), lambda: ())
        x = jnp.sin(x) * jnp.cos(x)
    return jnp.sum(x)


def shared(w: Any, x: Any) -> Any:
    """What only another block reads is cheap to make of an operand."""
    x = x[0]

    def step(c: Any) -> Any:
        i, y = c
        wide = jnp.broadcast_to(x[0], (SIZE,))
        y = jnp.cos(jnp.sin(y * x)) * y
        inner = lambda s: (s[0] + 1, jnp.sin(s[1]) * wide + x)  # noqa: E731
        _, y = jax.lax.while_loop(lambda s: s[0] < i, inner, (0, y))
        return i + 1, y * jnp.exp(-x)

    test = lambda c: (c[0] < 4) & (c[1][0] < 9.0)  # noqa: E731
    return jnp.sum(jax.lax.while_loop(test, step, (0, x))[1])


def test_an_operation_without_results_is_cut_around() -> None:
    w, x = weights(1), state()
    assert any(not e.outvars for e in jax.make_jaxpr(checked)(w, x).eqns)
    assert len(seams.compiled(checked, w, x, piece=2_000).code) > 1


@pytest.mark.parametrize(
    ("fun", "dtype", "stage", "piece"),
    [
        pytest.param(scanned, "float32", 1, 20_000, marks=pytest.mark.slow),
        pytest.param(scanned, "float64", 3, 5_000, marks=pytest.mark.slow),
        pytest.param(scanned, "float64", 1, 5_000, marks=pytest.mark.slow),
        pytest.param(unrolled, "float64", 1, 20_000, marks=pytest.mark.slow),
        (checked, "float64", 1, 2_000),
        (shared, "float64", 1, 1),
    ],
)
def test_gradient_of_a_cut_program(
    fun: Any, dtype: Any, stage: int, piece: int
) -> None:
    w, x = weights(2, dtype), state(dtype)
    plan = retape.fixed_space(snapshots=2, stage=stage)
    by = (0, 1) if fun in (scanned, unrolled) else 1
    with seams.finely(piece=piece):
        got = jax.jit(retape.jax.grad(fun, by, plan=plan))(w, x)
    want = (jax.jacfwd if fun is shared else jax.grad)(fun, by)(w, x)
    assert_close(got, want, 2e-5 if dtype == "float32" else 1e-12)


# Budgets -----------------------------------------------------------------------------


def temp_bytes(fun: Any, *args: Any) -> int:
    return jax.jit(fun).lower(*args).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.slow
@pytest.mark.parametrize("fun", [scanned, unrolled])
def test_a_budget_below_a_whole_block(fun: Any) -> None:
    """Straight-line code, too, is kept within a budget that its derivative exceeds."""
    w, x = weights(6, np.float32), state(np.float32, 512)
    budget = 3_500_000
    gradient = retape.jax.grad(fun, plan=retape.within(budget))
    got = jax.jit(gradient).lower(w, x).compile()
    assert got.memory_analysis().temp_size_in_bytes <= budget
    assert temp_bytes(jax.grad(fun), w, x) > budget
    # Single precision: rounding is that of the greatest entries, of several hundred.
    both = map(jax.tree.leaves, (got(w, x), jax.grad(fun)(w, x)))
    for ours, plain in zip(*both, strict=True):
        far = np.linalg.norm(ours - plain) / np.linalg.norm(plain)
        assert far < 2e-6, far


def test_a_straight_line_is_cut_whatever_the_plan() -> None:
    """One that tapes tens of megabytes; nothing of it is run."""
    w, x = weights(4), jax.ShapeDtypeStruct((4000, SIZE), np.float64)
    explained = retape.jax.explain(unrolled, w, x, plan=retape.logarithmic())
    assert explained.steps is not None and explained.steps > 8
    assert explained.stage == 1 and 1 < explained.snapshots < 10


# Checked -----------------------------------------------------------------------------


def chain_of(after: Any, whole: Any) -> list[Any]:
    """The blocks that a cut made."""
    chain = [b for b in blocks_of(after.items) if b.label not in labels(whole)]
    assert chain
    return chain


def loses_an_operation(after: Any, whole: Any, _: int) -> None:
    chain_of(after, whole)[0].ops.pop()


def turns_a_piece_round(after: Any, whole: Any, _: int) -> None:
    max(chain_of(after, whole), key=lambda b: len(b.ops)).ops.reverse()


def assigns_early(after: Any, whole: Any, _: int) -> None:
    last = next(b for b in chain_of(after, whole) if b.moves)
    before = next(
        b for b in blocks_of(after.items) if b.next.targets[:1] == (last.label,)
    )
    before.moves, last.moves = last.moves, {}


def adds_a_block(after: Any, whole: Any, _: int) -> Any:
    stray = Block(type(labels(whole)[0])())
    return replace(after, items=[*after.items, stray])


LIES = {
    loses_an_operation: "operation was lost|before it is made",
    turns_a_piece_round: "before it is made",
    assigns_early: "only the last piece",
    adds_a_block: "ends the run",
}


@pytest.mark.parametrize("lie", LIES, ids=lambda f: f.__name__)
def test_a_lie_is_caught(lie: Any) -> None:
    piece = seams.max_tape_bytes(cut().program) // 3
    cut(piece)
    with (
        seams.lying("split_blocks", lie),
        pytest.raises(AssertionError, match=LIES[lie]),
    ):
        cut(piece)


def test_what_the_pieces_share_is_registers_only() -> None:
    """Rows are read, and what follows from them made, in each piece that needs it."""
    blocks = list(blocks_of(cut(seams.max_tape_bytes(cut().program) // 3).items))
    rows = [r.out for b in blocks for r in b.reads]
    assert rows and all(isinstance(v, Var) for v in rows)
    assert not set().union(*(b.uses() for b in blocks)) & set(rows)

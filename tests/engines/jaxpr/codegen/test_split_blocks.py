"""Cutting long blocks: where, what it does to gradients, and what the checker catches.

The oracle is plain reverse mode of the program as it is.
"""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import retape
import retape.jax
from retape.engines.jaxpr._pipeline import compile_program
from retape.engines.jaxpr.calls import _rules as _primitives
from retape.engines.jaxpr.codegen._allocate import allocate
from retape.engines.jaxpr.codegen._split_blocks import (
    _bounds,
    check_split,
    max_tape_bytes,
    split_blocks,
)
from retape.engines.jaxpr.ir._ir import Block, Program, Var, blocks_of
from retape.engines.jaxpr.lower._lower_jaxpr import lower_jaxpr
from retape.engines.jaxpr.sizing import _choose_settings as _settle
from tests.engines.jaxpr.support.forms import FORMS
from tests.engines.jaxpr.support.programs import assert_close, forward_gradient

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


def program(fun: Any, *args: Any) -> Program:
    jaxpr = jax.make_jaxpr(fun)(*args)
    return lower_jaxpr(jaxpr, [True] * len(jaxpr.in_avals), grain=0)[0]


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Every scan is opened, and every block cut so that it tapes so many bytes."""

    def at_most(limit: int) -> None:
        small = functools.partial(compile_program, grain=0, piece=limit)
        monkeypatch.setattr(_primitives, "compile_program", small)

    return at_most


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
    found = _bounds(costs, widths, limit)
    assert found in every
    assert price(found) == min(map(price, every))


def test_a_cut_falls_where_little_is_alive() -> None:
    whole = program(scanned, weights(3), state())
    after = split_blocks(whole, 2 * max_tape_bytes(whole) // 3)
    assert len(list(blocks_of(after.items))) > len(list(blocks_of(whole.items)))
    before, wide = allocate(whole)[0].capsule_bytes(), 4 * SIZE * 4 * 8
    # A state or two more, and none of the hidden values.
    assert allocate(after)[0].capsule_bytes() < before + wide
    assert after.length is not None and whole.length is not None
    assert after.length > whole.length


def test_a_block_within_the_limit_stays_whole() -> None:
    whole = program(scanned, weights(3), state())
    after = split_blocks(whole, max_tape_bytes(whole))
    assert list(blocks_of(after.items)) == list(blocks_of(whole.items))


# What it does ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("fun", [scanned, unrolled])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 2e-5), ("float64", 1e-12)]
)
def test_gradient_of_a_cut_program(
    fun: Any, dtype: Any, tolerance: float, pieces: Any
) -> None:
    pieces(20_000)
    w, x = weights(2, dtype), state(dtype)
    plan = retape.fixed_space(snapshots=3, stage=1)
    got = retape.jax.grad(fun, (0, 1), plan=plan)(w, x)
    assert_close(got, jax.grad(fun, (0, 1))(w, x), tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("stage", [1, 3])
def test_stages_of_pieces(stage: int, pieces: Any) -> None:
    pieces(5_000)
    w, x = weights(2), state()
    plan = retape.fixed_space(snapshots=2, stage=stage)
    got = retape.jax.grad(scanned, plan=plan)(w, x)
    assert_close(got, jax.grad(scanned)(w, x), 1e-12)


@pytest.mark.slow
@settings(
    max_examples=5,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    form=st.sampled_from([f for f in FORMS if f.unrolls]),
    limit=st.sampled_from([1, 8, 24, 100]),
    snapshots=st.sampled_from([1, 3]),
)
def test_forms_cut_anyhow(form: Any, limit: int, snapshots: int, pieces: Any) -> None:
    pieces(limit)
    args = form.arguments()
    fun = form.with_loops(jax.lax)
    plan = retape.fixed_space(snapshots=snapshots, stage=1)
    value, gradient = retape.jax.value_and_grad(fun, plan=plan)(*args)
    assert_close(value, jnp.asarray(fun(*args)))
    assert_close(gradient, forward_gradient(fun, *args))


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


def test_a_straight_line_is_cut_whatever_the_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_settle, "_LINE", 1 << 16)
    w, x = weights(4), state()
    explained = retape.jax.explain(unrolled, w, x, plan=retape.logarithmic())
    assert explained.steps is not None and explained.steps > 8
    assert explained.stage == 1 and 1 < explained.snapshots < 10


@pytest.mark.slow
def test_the_least_budget_is_named_and_is_enough() -> None:
    w, x = weights(6, np.float32), state(np.float32, 512)
    expected = r"take (\d+) bytes, however finely its blocks are cut. Pass `retape"
    with pytest.raises(retape.BudgetError, match=expected) as caught:
        retape.jax.explain(scanned, w, x, plan=retape.within("300 kB"))
    found = re.search(r"take (\d+) bytes", str(caught.value))
    assert found
    least = int(found[1])
    explained = retape.jax.explain(scanned, w, x, plan=retape.within(least))
    assert explained.snapshots == 1
    with pytest.raises(retape.BudgetError, match=f"take {least} bytes"):
        retape.jax.explain(scanned, w, x, plan=retape.within(least - 1))


# Checked -----------------------------------------------------------------------------


def cut_in_two() -> tuple[Program, Program, list[Block]]:
    whole = program(scanned, weights(2), state())
    after = split_blocks(whole, max_tape_bytes(whole) // 3)
    check_split(whole, after)
    heads = {b.label for b in blocks_of(whole.items)}
    chain = [b for b in blocks_of(after.items) if b.label not in heads]
    assert chain
    return whole, after, chain


def test_the_checker_misses_a_lost_operation() -> None:
    whole, after, chain = cut_in_two()
    chain[0].ops.pop()
    with pytest.raises(AssertionError, match="lost in cutting|before it is made"):
        check_split(whole, after)


def test_the_checker_catches_an_order_that_cannot_be() -> None:
    whole, after, chain = cut_in_two()
    block = max(chain, key=lambda b: len(b.ops))
    block.ops.reverse()
    with pytest.raises(AssertionError, match="before it is made"):
        check_split(whole, after)


def test_the_checker_catches_an_early_assignment() -> None:
    whole, after, chain = cut_in_two()
    last = next(b for b in chain if b.moves)
    before = next(
        b for b in blocks_of(after.items) if b.next.targets[:1] == (last.label,)
    )
    before.moves, last.moves = last.moves, {}
    with pytest.raises(AssertionError, match="only the last piece"):
        check_split(whole, after)


def test_the_checker_catches_a_stray_block() -> None:
    whole, after, chain = cut_in_two()
    stray = Block(type(chain[0].label)())
    with pytest.raises(AssertionError, match="belongs to no block"):
        check_split(whole, replace(after, items=[*after.items, stray]))


def test_what_the_pieces_share_is_registers_only() -> None:
    """Rows are read, and what follows from them made, in each piece that needs it."""
    _, after, chain = cut_in_two()
    rows = [r.out for b in chain for r in b.reads]
    assert all(isinstance(v, Var) for v in rows)
    uses = set().union(*(b.uses() for b in chain))
    assert not uses & set(rows)


@pytest.mark.slow
def test_an_operation_without_results_is_cut_around() -> None:
    """Third-party code has branches that only check; nothing reads what they give."""

    def fun(x: Any) -> Any:
        for _ in range(6):
            jax.lax.cond(jnp.sum(x) > 0, lambda: (), lambda: ())
            x = jnp.sin(x) * jnp.cos(x)
        return jnp.sum(x)

    jaxpr = jax.make_jaxpr(fun)(jnp.ones(1000))
    assert any(not e.outvars for e in jaxpr.eqns)
    made = compile_program(jaxpr, [True], piece=20_000)
    assert len(made.code) > 1
    patched = functools.partial(compile_program, piece=20_000)
    x = jnp.linspace(0.1, 1.0, 1000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_primitives, "compile_program", patched)
        got = retape.jax.grad(fun)(x)
    assert_close(got, jax.grad(fun)(x))


def test_what_only_another_block_reads_is_made(pieces: Any) -> None:
    """Cheap to make of an operand, and of no use to the block that it stands in."""
    pieces(1)

    def fun(x: Any) -> Any:
        def step(c: Any) -> Any:
            i, y = c
            wide = jnp.broadcast_to(x[0], (3,))
            y = jnp.cos(jnp.sin(y * x)) * y
            inner = lambda s: (s[0] + 1, jnp.sin(s[1]) * wide + x)  # noqa: E731
            _, y = jax.lax.while_loop(lambda s: s[0] < i, inner, (0, y))
            return i + 1, y * jnp.exp(-x)

        test = lambda c: (c[0] < 4) & (c[1][0] < 9.0)  # noqa: E731
        return jnp.sum(jax.lax.while_loop(test, step, (0, x))[1])

    x = jnp.asarray([0.7, -0.4, 1.1])
    plan = retape.fixed_space(snapshots=2, stage=1)
    got = jax.jit(retape.jax.grad(fun, plan=plan))(x)
    assert_close(got, jax.jacfwd(fun)(x))

"""Policies: same gradients, less memory, budgets that hold, and the choice of cuts."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import Offloadable, checkpoint_name

import retape
from retape.jax import checkpoint, policies, scan
from tests.engines.jaxpr.support.networks import assert_near, compilations, compiled
from tests.engines.jaxpr.support.seams import (
    Cutter,
    Graph,
    graph_of,
    least_peak,
    least_work_cut,
)
from tests.judges.jax.layered import drawn, perceptron


def test_named_values_are_saved_and_others_computed_again() -> None:
    def f(x: Any) -> Any:
        kept = checkpoint_name(jnp.sin(x), "kept")
        return jnp.cos(jnp.exp(kept))

    def held(policy: Any) -> bool:
        text = str(jax.make_jaxpr(checkpoint(f, policy=policy))(0.5))
        return "retape_with_primal" in text

    save, other = policies.names(save=["kept"]), policies.names(save=["other"])
    assert held(save)
    said = r"no value named \['other'\].*; its names are \['kept'\]"
    with pytest.warns(retape.RetapeWarning, match=said):
        assert not held(other)
    with pytest.warns(retape.RetapeWarning, match="it names no value"):
        checkpoint(jnp.sin, policy=other)(0.3)

    def looped(policy: Any) -> Any:
        step = lambda x, _: (f(x), None)  # noqa: E731
        return lambda x: scan(step, x, length=4, policy=policy)[0]

    with pytest.warns(retape.RetapeWarning, match="the body of the loop has no value"):
        got = jax.grad(looped(other))(0.5)
    assert_near(got, jax.grad(looped(save))(0.5))
    assert_near(jax.grad(checkpoint(f, policy=save))(0.5), jax.grad(f)(0.5))


@pytest.mark.parametrize("answer", [None, "no", 1, np.bool_(True), Offloadable])
def test_an_answer_that_jax_refuses_is_refused(answer: Any) -> None:
    def f(x: Any) -> Any:
        return jnp.sin(jnp.exp(x))

    def policy(*_: Any, **__: Any) -> Any:
        return answer

    with pytest.raises(TypeError, match="remat policy should be a bool"):
        jax.grad(jax.checkpoint(f, policy=policy))(0.5)
    with pytest.raises(retape.PlanError, match=r"Return `True` or `False`"):
        jax.grad(checkpoint(f, policy=policy))(0.5)


def test_offloaded_names_are_left_to_jax() -> None:
    def f(x: Any) -> Any:
        return jnp.cos(checkpoint_name(jnp.sin(x), "far")).sum()

    marked = checkpoint(f, policy=policies.names(offload=["far"]))
    x = jnp.linspace(0, 1, 5)
    with pytest.warns(retape.RetapeWarning, match="on the CPU the host's memory is"):
        text = str(jax.make_jaxpr(jax.grad(marked))(x))
    assert "<host>" in text
    with pytest.warns(retape.RetapeWarning, match="save=") as found:
        assert_near(jax.jit(jax.grad(marked))(x), jax.grad(f)(x))
    assert found[0].filename == __file__


def test_selective_saves_products_with_weights_and_computes_the_rest_again() -> None:
    def f(x: Any, w: Any) -> Any:
        scores = jax.nn.softmax(jnp.einsum("bsd,btd->bst", x @ w, x))
        keep = jax.random.bernoulli(jax.random.key(0), 0.9, scores.shape)
        return jnp.tanh(jnp.einsum("bst,btd->bsd", scores * keep, x)).sum()

    args = jnp.ones((2, 64, 8)), jnp.ones((8, 8))
    saved: dict[str, list[Any]] = {}
    for name, policy in (("none", None), ("selective", policies.selective())):
        marked = jax.checkpoint(f, policy=policy)
        held = jax.eval_shape(lambda *a, m=marked: jax.vjp(m, *a)[1], *args)
        saved[name] = [leaf.shape for leaf in jax.tree.leaves(held)]
    # The product with weights more, and no scores, no mask.
    assert saved["selective"].count((2, 64, 8)) == saved["none"].count((2, 64, 8)) + 1
    assert (2, 64, 64) not in saved["selective"]


# Budgets --------------------------------------------------------------------------


def test_a_refusal_compiles_three_candidates_at_most() -> None:
    def f(w: Any, x: Any) -> Any:
        return jnp.sin(perceptron(w, x))

    marked = checkpoint(f, policy=policies.within(10))
    weights, x = [drawn(8, 8)] * 3, drawn(8, 8)

    def refused() -> None:
        with pytest.raises(retape.BudgetError):
            jax.grad(marked)(weights, x)

    # One program of each, and of the least the one with the value, too.
    assert compilations(refused) <= 3 + 1


@pytest.mark.slow
@pytest.mark.parametrize("argnums", [1, (0, 1)])
def test_a_budget_is_for_the_gradient_that_is_taken(argnums: Any) -> None:
    f, args = perceptron, ([drawn(16, 16)] * 6, drawn(64, 16))
    slope = jax.grad(f, argnums)
    most = compiled(slope, *args).memory_analysis().temp_size_in_bytes
    budget = policies.within(round(0.85 * most))
    program = compiled(jax.grad(checkpoint(f, policy=budget), argnums), *args)
    assert program.memory_analysis().temp_size_in_bytes <= 0.85 * most + 1
    assert_near(program(*args), slope(*args))


def test_a_budget_without_a_derivative_compiles_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jax.stages.Lowered.compile", None)
    marked = checkpoint(perceptron, policy=policies.within(1))
    x, w = jnp.ones((2, 3)), jnp.eye(3)
    assert float(marked([w], x)) == pytest.approx(6 * float(jnp.tanh(1.0)) ** 2)


def test_a_budget_for_a_linear_function_is_transposed() -> None:
    a = drawn(3, 4)
    marked = checkpoint(lambda x: jnp.sin(a) @ x, policy=policies.within("1 MB"))
    (back,) = jax.linear_transpose(marked, jnp.ones(4))(jnp.arange(3.0))
    assert_near(back, jnp.sin(a).T @ jnp.arange(3.0))


@pytest.mark.slow
def test_slices_of_a_stack_are_neither_copied_nor_gathered() -> None:
    w, x = jnp.stack([drawn(64, 64)] * 12), drawn(8, 64)

    def stacked(w: Any, x: Any) -> Any:
        return perceptron([w[i] for i in range(12)], x)

    marked = checkpoint(stacked, policy=policies.every_n(2))
    program = compiled(jax.grad(marked), w, x)
    # The weights are 32 kB a layer, the activations 4: a copy of either kind is 393 kB.
    assert program.memory_analysis().temp_size_in_bytes < 3 * 32768 + 12 * 2 * 4096
    assert_near(program(w, x), jax.grad(stacked)(w, x))


# The choice of cuts ---------------------------------------------------------------


def small_graph() -> Graph:
    def f(x: Any, w: Any) -> Any:
        for _ in range(3):
            x = jnp.tanh(x @ w) + x
        return x.sum()

    return graph_of(jax.make_jaxpr(f)(jnp.ones((6, 4)), jnp.ones((4, 4))))[0]


def every_cut(cutter: Cutter) -> list[tuple[int, int]]:
    """Peak and work of every way to cut and to treat the parts."""
    last = len(cutter.places) - 1
    found: list[tuple[int, int]] = []
    for inner in itertools.product([False, True], repeat=last - 1):
        chain = [0, *(i + 1 for i, cut in enumerate(inner) if cut), last]
        parts = [cutter.options(a, b) for a, b in itertools.pairwise(chain)]
        for ways in itertools.product(*parts):
            kept = peak = 0
            for way in ways:
                kept += way.kept
                peak = max(peak, kept + way.inside)
            found.append((peak, sum(way.work for way in ways)))
    return found


def test_the_lowest_peak_is_that_of_all_cuts() -> None:
    cutter = Cutter(small_graph())
    least = min(peak for peak, _ in every_cut(cutter))
    assert least <= least_peak(cutter).peak_bytes <= least * 1.02 + 1


@pytest.mark.slow
def test_the_cheapest_cut_is_that_of_all_cuts_within_the_budget() -> None:
    cutter = Cutter(small_graph(), ("mark", "products", "store"))
    every = every_cut(cutter)
    for budget in (200, 400, 700, 1500):
        found = least_work_cut(cutter, budget)
        # Bytes are rounded up: no better than the best, no worse than the best of a
        # budget that is a little less.
        best = [
            min((w for p, w in every if p <= b), default=None)
            for b in (budget, int(0.9 * budget))
        ]
        if found is None:
            assert best[1] is None
            continue
        assert found.peak_bytes <= budget
        assert best[0] is not None and best[0] <= found.work
        assert best[1] is None or found.work <= best[1]


def test_the_search_of_all_cuts_finds_a_small_lie() -> None:
    cutter = Cutter(small_graph())
    least = min(peak for peak, _ in every_cut(cutter))
    last = len(cutter.places) - 1
    (way,) = cutter.options(0, last)
    cutter.known[0, last] = [way._replace(inside=least - 1, kept=0)]
    assert min(peak for peak, _ in every_cut(cutter)) < least

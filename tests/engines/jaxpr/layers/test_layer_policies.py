"""Policies: same gradients, less memory, budgets that hold, and the choice of cuts."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name

import retape
from retape.engines.jaxpr.layers._cutting import Cutter, cheapest, least_peak
from retape.engines.jaxpr.layers._graph import Graph, graph_of
from retape.jax import checkpoint, policies, scan

from .networks import graded, layer, loss, near, start, temp_bytes, weights

LAYERS = 4
whole = functools.partial(loss, layer)
POLICIES: dict[str, Any] = {
    "every_n": policies.every_n(20),
    "by_depth": policies.by_depth(30),
    "sqrt": policies.sqrt(),
    "selective": policies.selective(),
    "intensity": policies.selective(flops_per_byte=2),
    "jax": jax.checkpoint_policies.dots_saveable,
}


EACH_LAYER = {"selective", "intensity", "jax"}
"""Policies that look at one operation at a time: all that they do not keep is run again
at once, so they belong around each layer."""


@functools.cache
def plain() -> tuple[Any, int]:
    return graded(whole, weights(LAYERS), start())


@pytest.mark.parametrize("name", POLICIES)
def test_gradients_agree_and_less_memory_is_taken(name: str) -> None:
    if name in EACH_LAYER:
        marked = functools.partial(loss, checkpoint(layer, policy=POLICIES[name]))
    else:
        marked = checkpoint(whole, policy=POLICIES[name])
    slope, taken = graded(marked, weights(LAYERS), start())
    near(slope, plain()[0])
    assert taken < plain()[1]


def test_a_policy_works_in_a_scan_s_body() -> None:
    w = jax.tree.map(lambda *v: jnp.stack(v), *weights(LAYERS))
    h = start()

    def run(w: Any) -> Any:
        body = lambda c, x: (layer(c, x), None)  # noqa: E731
        return (scan(body, h, w, policy=policies.every_n(8))[0] ** 2).mean()

    got = jax.tree.map(lambda v: v[2], jax.jit(jax.grad(run))(w))
    near(got, plain()[0][2])


def test_named_values_are_saved_and_others_computed_again() -> None:
    def f(x: Any) -> Any:
        kept = checkpoint_name(jnp.sin(x), "kept")
        return jnp.cos(jnp.exp(kept))

    def held(policy: Any) -> bool:
        text = str(jax.make_jaxpr(checkpoint(f, policy=policy))(0.5))
        return "retape_instead" in text

    save, other = policies.names(save=["kept"]), policies.names(save=["other"])
    assert held(save) and not held(other)
    near(jax.grad(checkpoint(f, policy=save))(0.5), jax.grad(f)(0.5))


def test_a_name_is_either_saved_or_offloaded() -> None:
    with pytest.raises(retape.PlanError, match="cannot be both saved and offloaded"):
        policies.names(save=["a"], offload=["a", "b"])


def test_offloaded_names_are_left_to_jax() -> None:
    def f(x: Any) -> Any:
        return jnp.cos(checkpoint_name(jnp.sin(x), "far")).sum()

    marked = checkpoint(f, policy=policies.names(offload=["far"]))
    x = jnp.linspace(0, 1, 5)
    assert "<host>" in str(jax.make_jaxpr(jax.grad(marked))(x))
    near(jax.jit(jax.grad(marked))(x), jax.grad(f)(x))


@pytest.mark.parametrize("share", [0.7, 1.0])
def test_a_budget_holds_when_measured(share: float) -> None:
    args = weights(LAYERS), start()
    budget = int(share * plain()[1])
    marked = checkpoint(whole, policy=policies.within(budget))
    slope, taken = graded(marked, *args)
    assert taken <= budget
    near(slope, plain()[0])


def test_a_budget_that_nothing_meets_names_the_least() -> None:
    args = weights(LAYERS), start()
    with pytest.raises(retape.BudgetError, match="The least possible is") as caught:
        jax.grad(checkpoint(whole, policy=policies.within(2000)))(*args)
    least = int(str(caught.value).split("least possible is ")[1].split()[0])
    marked = checkpoint(whole, policy=policies.within(least))
    assert temp_bytes(marked, *args) <= least


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: policies.every_n(0), r"`every_n\(n=0\)` cannot be"),
        (lambda: policies.every_n(-3), "at least 1"),
        (lambda: policies.by_depth(-1), r"`by_depth\(depth=-1\)` cannot be"),
        (lambda: policies.within("many"), "many"),
    ],
)
def test_numbers_that_cannot_be_are_refused(make: Any, said: str) -> None:
    with pytest.raises(retape.PlanError, match=said):
        make()


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


def test_the_cheapest_cut_is_that_of_all_cuts_within_the_budget() -> None:
    cutter = Cutter(small_graph(), ("mark", "products", "store"))
    every = every_cut(cutter)
    for budget in (200, 400, 700, 1500):
        found = cheapest(cutter, budget)
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

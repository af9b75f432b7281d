"""Policies: same gradients, less memory, budgets that hold, and the choice of cuts."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name

import retape
from retape.jax import checkpoint, policies, scan
from tests.engines.jaxpr.support.networks import (
    assert_near,
    compilations,
    compiled,
    graded,
    layer,
    loss,
    start,
    temp_bytes,
    weights,
)
from tests.engines.jaxpr.support.seams import (
    Cutter,
    Graph,
    graph_of,
    least_peak,
    least_work_cut,
)

LAYERS = 4
whole = functools.partial(loss, layer)
POLICIES: dict[str, Any] = {
    "every_n": policies.every_n(20),
    "sqrt": policies.sqrt(),
    "selective": policies.selective(),
    "jax": jax.checkpoint_policies.dots_saveable,
}


EACH_LAYER = {"selective", "jax"}
"""Policies that look at one operation at a time: all that they do not keep is run again
at once, so they belong around each layer."""


@functools.cache
def plain() -> tuple[Any, int]:
    return graded(whole, weights(LAYERS), start())


@pytest.mark.slow("every_n")
@pytest.mark.parametrize("name", POLICIES)
def test_gradients_agree_and_less_memory_is_taken(name: str) -> None:
    if name in EACH_LAYER:
        marked = functools.partial(loss, checkpoint(layer, policy=POLICIES[name]))
    else:
        marked = checkpoint(whole, policy=POLICIES[name])
    slope, taken = graded(marked, weights(LAYERS), start())
    assert_near(slope, plain()[0])
    assert taken < plain()[1]


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


def test_a_name_is_either_saved_or_offloaded() -> None:
    with pytest.raises(retape.PlanError, match="cannot be both saved and offloaded"):
        policies.names(save=["a"], offload=["a", "b"])


@pytest.mark.parametrize("save", ["scores", 3, [1]], ids=str)
def test_what_is_no_list_of_names_is_refused(save: Any) -> None:
    said = "is not a list of names. Pass the names that were given by `checkpoint_name`"
    with pytest.raises(retape.PlanError, match=said):
        policies.names(save=save)


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


def mlp(w: Any, x: Any) -> Any:
    for each in w:
        x = jnp.tanh(x @ each)
    return (x**2).sum()


def convolutions(w: Any, x: Any) -> Any:
    for each in w:
        x = x + jax.nn.relu(lax.conv_general_dilated(x, each, (1, 1), "SAME"))
    return (x**2).mean()


def drawn(*shape: int) -> Any:
    return jnp.asarray(np.random.default_rng(len(shape)).normal(size=shape)) / 6


NETWORKS: dict[str, Any] = {
    "perceptron": lambda: (mlp, ([drawn(16, 16)] * 6, drawn(64, 16))),
    "attention": lambda: (whole, (weights(2), start())),
    "convolutions": lambda: (
        convolutions,
        ([drawn(4, 4, 3, 3)] * 3, drawn(2, 4, 12, 12)),
    ),
}


def least_of(f: Any, args: Any) -> int:
    """The least budget, as the refusal of a smaller one names it."""
    with pytest.raises(retape.BudgetError, match="least budget that would do") as error:
        jax.grad(checkpoint(f, policy=policies.within(1)))(*args)
    return int(str(error.value).split("would do is ")[1].split()[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_every_budget_holds_when_compiled_and_costs_less_the_larger_it_is(
    name: str,
) -> None:
    f, args = NETWORKS[name]()
    least, most = least_of(f, args), temp_bytes(f, *args)
    assert 2 * least < 1.7 * most
    work: list[float] = []
    for share in (0.0, 0.5, 1.0):
        budget = round(least + share * (most - least))
        marked = checkpoint(f, policy=policies.within(budget))
        valued = compiled(jax.value_and_grad(marked), *args)
        assert temp_bytes(marked, *args) <= budget
        assert valued.memory_analysis().temp_size_in_bytes <= budget
        work.append(valued.cost_analysis()["flops"])
    assert work == sorted(work, reverse=True) and work[-1] < work[0]
    assert_near(valued(*args), jax.value_and_grad(f)(*args))
    # One byte less than the least is refused: the number named is exact.
    with pytest.raises(retape.BudgetError, match=f"would do is {least} bytes"):
        jax.grad(checkpoint(f, policy=policies.within(least - 1)))(*args)


@pytest.mark.slow
def test_more_memory_is_never_more_work_in_whatever_order_it_is_asked_for() -> None:
    f, args = NETWORKS["perceptron"]()
    least, most = least_of(f, args), temp_bytes(f, *args)
    step = (most - least) // 9
    found: dict[int, float] = {}
    for share in (4, 9, 0, 6, 2):
        budget = least + share * step
        marked = checkpoint(f, policy=policies.within(budget))
        slope = jax.grad(marked)
        assert compilations(lambda g=slope: jax.make_jaxpr(g)(*args)) <= 3
        program = compiled(jax.grad(marked), *args)
        assert program.memory_analysis().temp_size_in_bytes <= budget
        found[budget] = program.cost_analysis()["flops"]
    works = [found[b] for b in sorted(found)]
    assert works == sorted(works, reverse=True)
    # What takes no more than the function as it is has nothing to run again.
    plain = compiled(jax.grad(f), *args).cost_analysis()["flops"]
    marked = checkpoint(f, policy=policies.within(2 * most))
    got = compiled(jax.grad(marked), *args).cost_analysis()["flops"]
    assert got <= 1.01 * plain


def test_a_refusal_compiles_three_programs_at_most() -> None:
    def f(w: Any, x: Any) -> Any:
        return jnp.sin(mlp(w, x))

    marked = checkpoint(f, policy=policies.within(10))
    weights, x = [drawn(8, 8)] * 3, drawn(8, 8)

    def refused() -> None:
        with pytest.raises(retape.BudgetError):
            jax.grad(marked)(weights, x)

    assert compilations(refused) <= 3


@pytest.mark.slow
@pytest.mark.parametrize("argnums", [1, (0, 1)])
def test_a_budget_is_for_the_gradient_that_is_taken(argnums: Any) -> None:
    f, args = NETWORKS["perceptron"]()
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
    marked = checkpoint(mlp, policy=policies.within(1))
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
        return mlp([w[i] for i in range(12)], x)

    marked = checkpoint(stacked, policy=policies.every_n(2))
    program = compiled(jax.grad(marked), w, x)
    # The weights are 32 kB a layer, the activations 4: a copy of either kind is 393 kB.
    assert program.memory_analysis().temp_size_in_bytes < 3 * 32768 + 12 * 2 * 4096
    assert_near(program(w, x), jax.grad(stacked)(w, x))


@pytest.mark.slow
def test_slices_of_a_stack_have_all_derivatives() -> None:
    w, x = jnp.stack([drawn(3, 3)] * 4), drawn(2, 3)

    def stacked(w: Any, x: Any) -> Any:
        return mlp([w[0], w[2], w[-1], w[1:3].sum(0)], x) + w.sum()

    def twice(f: Any) -> Any:
        slope = lambda w, x: (jax.grad(f)(w, x) * jnp.cos(w)).sum()  # noqa: E731
        return jax.vmap(jax.grad(slope), (0, None))(jnp.stack([w, 2 * w]), x)

    marked = checkpoint(stacked, policy=policies.every_n(2))
    assert_near(twice(marked), twice(stacked))
    tangent = jax.jvp(lambda w: marked(w, x), (w,), (jnp.sin(w),))
    assert_near(tangent, jax.jvp(lambda w: stacked(w, x), (w,), (jnp.sin(w),)))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: policies.every_n(0), r"`every_n\(n=0\)` is not valid"),
        (lambda: policies.every_n(-3), "at least 1"),
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

"""One budget, wherever a budget is meant: as a plan, and as a policy of layers."""

from dataclasses import replace

import pytest

import retape
from retape import PlanError

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")

import retape.jax  # noqa: E402
from retape.jax import policies  # noqa: E402


def deep(x):
    for _ in range(6):
        x = jnp.sin(jnp.cumsum(x))
    return x.sum()


def looped(w):
    def layer(h, _):
        return jnp.tanh(h @ w), None

    return jax.lax.scan(layer, jnp.ones((64, 8)), length=100)[0].sum()


X = jnp.linspace(0, 1, 4000)
W = jnp.eye(8) / 2


def temporaries(marked):
    return jax.jit(jax.grad(marked)).lower(X).compile().memory_analysis()


def test_there_is_one_within():
    assert policies.within is retape.within and "within" in policies.__all__


@pytest.mark.slow
def test_a_budget_is_a_policy():
    want = jax.grad(deep)(X)
    budget = retape.within("70 kB")
    assert temporaries(deep).temp_size_in_bytes > budget.limit
    for marked in (
        retape.jax.checkpoint(deep, policy=budget),
        retape.jax.Checkpointed(deep, policy=budget),
    ):
        assert temporaries(marked).temp_size_in_bytes <= budget.limit
        assert jnp.allclose(jax.grad(marked)(X), want, rtol=1e-6)
    with pytest.raises(retape.BudgetError, match="The least budget that would do is"):
        jax.grad(retape.jax.checkpoint(deep, policy=retape.within(9)))(X)


@pytest.mark.slow
def test_a_budget_is_a_policy_of_a_loop():
    def stacked(x):
        step = lambda c, _: (jnp.sin(jnp.cumsum(c)), None)  # noqa: E731
        return retape.jax.scan(
            step, x, length=4, policy=retape.within("1 MB"), levels=1
        )[0].sum()

    def plain(x):
        for _ in range(4):
            x = jnp.sin(jnp.cumsum(x))
        return x.sum()

    assert jnp.allclose(jax.grad(stacked)(X), jax.grad(plain)(X), rtol=1e-6)


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (retape.segments(), "This plan counts steps: pass it to `retape.jax.scan` as"),
        (
            retape.within(9, split="bisection"),
            "a policy divides operations. Pass `re",
        ),
        (
            retape.chain(forward=[1], states=[1], tapes=[1], budget=9),
            "is not a policy, which is asked about each operation",
        ),
    ],
)
def test_what_says_more_than_a_budget_is_no_policy(policy, said):
    for use in (retape.jax.checkpoint, retape.jax.Checkpointed):
        with pytest.raises(PlanError, match=said):
            use(deep, policy=policy)
    with pytest.raises(PlanError, match=said):
        retape.jax.scan(lambda c, _: (c, None), X, length=3, policy=policy)


@pytest.mark.slow
def test_what_the_planner_found_is_a_plan_where_it_is_one():
    found = retape.jax.advise(looped, W, memory="100 kB")
    assert found.chosen.name == "binomial"
    got = retape.jax.grad(looped, plan=found)(W)
    assert jnp.allclose(got, jax.grad(looped)(W), rtol=1e-5)
    roomy = replace(found, chosen=found.candidates[0])
    with pytest.raises(PlanError, match="fits as it is. Call `jax.grad"):
        retape.jax.grad(looped, plan=roomy)
    other = replace(found, chosen=found.candidates[1])
    with pytest.raises(PlanError, match="was chosen, is not a plan. Call `jax.grad"):
        retape.jax.checkpointed(looped, plan=other)

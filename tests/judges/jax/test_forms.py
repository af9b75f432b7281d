"""Every form of program, by drawn ways in, transformations and plans."""

from __future__ import annotations

import functools
import itertools
import random
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import retape
import retape.jax
from tests.engines.jaxpr.support.forms import FORMS
from tests.engines.jaxpr.support.programs import Form, Unrolled
from tests.judges.jax.judging import (
    LAYERS,
    OURS,
    PLANS,
    TRANSFORMS,
    WAYS,
    assert_equal,
    forward_mode,
)
from tests.judges.pairwise import dealt

pytestmark = pytest.mark.usefixtures("double_precision")

BY_NAME = {form.name: form for form in FORMS}
CELLS = list(itertools.product(WAYS, TRANSFORMS, PLANS))


def drawn() -> list[Any]:
    """A cell by the default plan for each form, another for each third; more `slow`.

    Cells are dealt out like cards, so that all occur before one occurs again.
    """
    chance = random.Random(38)
    cells = [c for c in CELLS if c[0] != "store" or c[1] == "itself"]
    deck: list[Any] = []
    found = []
    for place, form in enumerate(FORMS):
        plain = "grad", "itself", "default"
        found.append(pytest.param(form, *plain, marks=pytest.mark.release))
        for number in range(4):
            if not deck:
                deck = chance.sample(cells, len(cells))
            marks = [pytest.mark.slow] if number or place % 3 else []
            found.append(pytest.param(form, *deck.pop(), marks=marks))
    return found


@functools.cache
def wanted(name: str) -> Any:
    form = BY_NAME[name]
    by_forward_mode = forward_mode(form.with_loops(jax.lax), *form.arguments())
    if form.unrolls:
        straight = jax.grad(form.with_loops(Unrolled))(*form.arguments())
        assert_equal(by_forward_mode, straight)
    return by_forward_mode


@pytest.mark.slow(
    "closed_over_arrays-grad-itself-default",
    "linear_algebra-grad-itself-default",
    "rows_of_rows-grad-itself-default",
    "scan_of_13-grad-itself-default",
    "scan_xs_only-grad-itself-default",
    "switch_-3-grad-itself-default",
    "through_complex_numbers-grad-itself-default",
    "vmap_of_a_data_dependent_loop-grad-itself-default",
    "jit_with_a_loop_inside-grad-itself-default",
    "switch_0-grad-itself-default",
    "typed_keys-grad-itself-default",
    "typed_keys_of_another_kind-checkpointed-jit-bisection",
    "ys_feed_a_later_loop-grad-itself-default",
    "zero_trips-vjp-jit-bisection",
)
@pytest.mark.parametrize(
    ("form", "way", "transform", "plan"),
    drawn(),
    ids=lambda v: v.name if isinstance(v, Form) else v,
)
def test_the_gradient_is_that_of_forward_mode(
    form: Form, way: str, transform: str, plan: str
) -> None:
    gradient = WAYS[way](form.with_loops(jax.lax), PLANS[plan])
    got = TRANSFORMS[transform](gradient, *form.arguments())
    assert_equal(got, wanted(form.name))


# Loops of `retape.jax` in the places of those of `jax.lax` ---------------------------

LOOPED = [
    "halt_on_data",
    "while_in_while",
    "two_inner_loops",
    "fori_dynamic",
    "carry_swaps",
    "integers_and_booleans",
    "scan_of_13_reversed",
    "scan_of_0",
    "scan_of_a_tree",
    "nested_scans",
    "rows_written_by_hand",
    "cond_with_a_loop_in_a_loop",
    "rows_of_typed_keys",
    "nothing_in_an_array",
]


@pytest.mark.parametrize("name", LOOPED)
def test_loops_of_ours_have_the_gradient_of_jax_s(name: str) -> None:
    form = BY_NAME[name]
    fun, args = form.with_loops(OURS), form.arguments()
    value, got = jax.jit(jax.value_and_grad(fun))(*args)
    assert_equal(value, jnp.asarray(form.with_loops(jax.lax)(*args)))
    assert_equal(got, wanted(name))


# Layers: what JAX can reverse by itself ---------------------------------------------

REVERSED = ["carry_swaps", "nested_scans", "linear_algebra", "custom_jvp_inside"]


# That policies which cut between operations gain nothing in a loop is advice.
@pytest.mark.filterwarnings("ignore:.*Write the loop as `retape.jax.scan`")
@pytest.mark.parametrize(("name", "layer"), dealt(REVERSED, list(LAYERS)))
def test_a_marked_layer_has_the_gradient_of_the_plain_one(
    name: str, layer: str
) -> None:
    form = BY_NAME[name]
    marked = LAYERS[layer](form.with_loops(jax.lax))
    value, got = jax.value_and_grad(marked)(*form.arguments())
    assert_equal(value, form.with_loops(jax.lax)(*form.arguments()))
    assert_equal(got, wanted(name))


def test_the_judge_sees_a_small_lie() -> None:
    form = BY_NAME["while_in_while"]
    (x,) = form.arguments()
    fun = form.with_loops(jax.lax)
    got = retape.jax.grad(lambda x: fun(x * (1 + 1e-6)))(x)
    with pytest.raises(AssertionError):
        assert_equal(got, wanted(form.name))

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
from tests.engines.jaxpr.support import seams
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
OPENED_OFTEN = (
    "two_inner_loops", "carry_swaps", "scan_of_1", "ys_feed_a_while", "rows_of_rows",
    "cond_with_a_loop_in_a_loop", "jit_with_a_loop_inside", "rows_of_typed_keys",
    "indexed_updates", "conds_in_a_cond",
)  # fmt: skip
LOOPED_OFTEN = (
    "halt_on_data", "while_in_while", "fori_dynamic", "integers_and_booleans",
    "scan_of_13_reversed", "scan_of_0", "scan_of_a_tree", "nested_scans",
    "rows_of_typed_keys",
)  # fmt: skip
"""Forms that are asked on each change with their loops opened, or by ours."""


def drawn() -> list[Any]:
    """A cell by the default plan for each form, but for each third; more are `slow`.

    Cells are dealt out like cards, so that all occur before one occurs again. All are
    `slow` of forms that are asked below on each change.
    """
    chance = random.Random(38)
    cells = [c for c in CELLS if c[0] != "store" or c[1] == "itself"]
    deck: list[Any] = []
    found = []
    for place, form in enumerate(FORMS):
        another = place % 3 == 0
        often = [pytest.mark.release]
        if form.name in OPENED_OFTEN + LOOPED_OFTEN:
            often.append(pytest.mark.slow)
        plain = "grad", "itself", "default"
        marks = [*often, pytest.mark.slow] if another else often
        found.append(pytest.param(form, *plain, marks=marks))
        for number in range(4):
            if not deck:
                deck = chance.sample(cells, len(cells))
            marks = often if another and number == 0 else [pytest.mark.slow]
            found.append(pytest.param(form, *deck.pop(), marks=marks))
    return found


@functools.cache
def wanted(name: str) -> Any:
    form = BY_NAME[name]
    return forward_mode(form.with_loops(jax.lax), *form.arguments())


@pytest.mark.slow
@pytest.mark.parametrize("name", [form.name for form in FORMS if form.unrolls])
def test_forward_mode_is_the_gradient_of_the_form_without_loops(name: str) -> None:
    form = BY_NAME[name]
    straight = jax.grad(form.with_loops(Unrolled))(*form.arguments())
    assert_equal(wanted(name), straight)


@pytest.mark.slow(
    "linear_algebra-grad-itself-default",
    "scan_of_13-grad-itself-default",
    "scan_xs_only-grad-itself-default",
    "through_complex_numbers-grad-itself-default",
    "vmap_of_a_data_dependent_loop-grad-itself-default",
    "switch_0-grad-itself-default",
    "switch_1-grad-itself-default",
    "typed_keys-grad-itself-default",
    "typed_keys_of_another_kind-grad-itself-default",
    "ys_feed_a_later_loop-grad-itself-default",
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


# Opened and cut ----------------------------------------------------------------------

# A short scan is a step of its own; opened, as a long one is, it is one more loop. With
# few snapshots on each change; all else each night, and the blocks cut, too.
OPENED: dict[str, dict[str, Any]] = {
    "few": {"plan": PLANS["snapshots"]},
    "each step": {
        "plan": retape.fixed_space(snapshots=500, stage=1),
        "loops": "device",
    },
    "each third step": {
        "plan": retape.fixed_space(snapshots=500, stage=3),
        "loops": "device",
    },
}
PIECES = dict(
    zip([form.name for form in FORMS[::8]], [1, 8, 24, 100] * 2, strict=False)
)


@pytest.mark.parametrize(
    ("name", "how", "piece"),
    [
        pytest.param(
            *(name, how, piece),
            marks=()
            if how == "few" and name in OPENED_OFTEN and not piece
            else pytest.mark.slow,
        )
        for name, how, piece in [
            *((name, how, None) for name in BY_NAME for how in OPENED),
            *((name, "few", piece) for name, piece in PIECES.items()),
        ]
    ],
)
def test_opened_it_has_the_same_gradient(
    name: str, how: str, piece: int | None
) -> None:
    form = BY_NAME[name]
    fun, args = form.with_loops(jax.lax), form.arguments()
    with seams.finely(piece=piece):
        value, got = retape.jax.value_and_grad(fun, **OPENED[how])(*args)
    assert_equal(value, jnp.asarray(fun(*args)))
    assert_equal(got, wanted(name))


# The default, a little memory and bisection are above, for every form.
KNOWN, UNKNOWN = "ys_feed_a_later_loop", "while_in_while"
FURTHER: dict[str, tuple[str, Any]] = {
    "a snapshot": (UNKNOWN, retape.fixed_space(snapshots=1, stage=1)),
    "long stages": (UNKNOWN, retape.fixed_space(snapshots=7, stage=5)),
    "within 12 kB": (UNKNOWN, retape.within("12 kB")),
    "treeverse": (UNKNOWN, retape.fixed_space(snapshots=3, stage=1, split="treeverse")),
    "a snapshot, known": (KNOWN, retape.fixed_space(snapshots=1, stage=5)),
    "stages of a step": (KNOWN, retape.fixed_space(snapshots=3, stage=1)),
    "within 1 MiB": (KNOWN, retape.within("1 MiB")),
    "fixed time": (KNOWN, retape.fixed_time(sweeps=2)),
    "segments": (KNOWN, retape.segments()),
}


@pytest.mark.slow("a snapshot, known", "within 1 MiB", "long stages")
@pytest.mark.parametrize("plan", FURTHER)
def test_every_plan_on_runs_of_known_and_unknown_length(plan: str) -> None:
    name, chosen = FURTHER[plan]
    fun, args = BY_NAME[name].with_loops(jax.lax), BY_NAME[name].arguments()
    with seams.finely():
        gradient = jax.jit(retape.jax.value_and_grad(fun, plan=chosen))
        value, got = gradient(*args)
    assert_equal(value, fun(*args))
    assert_equal(got, wanted(name))


# Loops of `retape.jax` in the places of those of `jax.lax` ---------------------------

LOOPED = (
    *LOOPED_OFTEN, "two_inner_loops", "carry_swaps", "rows_written_by_hand",
    "cond_with_a_loop_in_a_loop", "nothing_in_an_array",
)  # fmt: skip


@pytest.mark.slow(*LOOPED[len(LOOPED_OFTEN) :])
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
@pytest.mark.slow("linear_algebra-within")
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

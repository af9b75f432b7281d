"""Every form of program, its scans opened and its blocks cut, against three oracles.

As they are the forms are looked at by `judges/jax/test_forms.py`, where a short scan is
a step of its own. Opened, as a long one would be, it is one more loop.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import retape
import retape.jax
from tests.engines.jaxpr.support import seams
from tests.engines.jaxpr.support.forms import FORMS
from tests.engines.jaxpr.support.programs import (
    Form,
    Unrolled,
    assert_close,
    finite_difference,
    forward_gradient,
)

BY_NAME = {f.name: f for f in FORMS}
FEW = retape.fixed_space(snapshots=2, stage=2)
OFTEN = (
    "two_inner_loops", "carry_swaps", "scan_of_1", "ys_feed_a_while", "rows_of_rows",
    "cond_with_a_loop_in_a_loop", "jit_with_a_loop_inside", "rows_of_typed_keys",
    "indexed_updates",
)  # fmt: skip
"""On each change, the others each night; and whichever is cut, with its bytes."""
CUT = dict(zip([form.name for form in FORMS[::8]], [1, 8, 24, 100] * 2, strict=False))
CELLS = [(form, None) for form in FORMS] + [(BY_NAME[n], CUT[n]) for n in CUT]


@pytest.mark.parametrize(
    ("form", "piece"),
    [
        pytest.param(
            form,
            piece,
            id=form.name if piece is None else f"{form.name}, cut",
            marks=() if form.name in OFTEN and piece is None else pytest.mark.slow,
        )
        for form, piece in CELLS
    ],
)
def test_gradient(form: Form, piece: int | None) -> None:
    args, fun = form.arguments(), form.with_loops(jax.lax)
    with seams.finely(piece=piece):
        value, gradient = retape.jax.value_and_grad(fun, plan=FEW)(*args)
    assert_close(value, jnp.asarray(fun(*args)))
    assert_close(gradient, forward_gradient(fun, *args))
    if form.unrolls:
        assert_close(gradient, jax.grad(form.with_loops(Unrolled))(*args))


# The default, a little memory and bisection are in the judges' tables, for every form.
KNOWN, UNKNOWN = "ys_feed_a_later_loop", "while_in_while"
PLANS: dict[str, tuple[str, Any]] = {
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


@pytest.mark.usefixtures("opened")
@pytest.mark.parametrize("name", PLANS)
def test_every_plan_on_runs_of_known_and_unknown_length(name: str) -> None:
    form, plan = BY_NAME[PLANS[name][0]], PLANS[name][1]
    fun, (x,) = form.with_loops(jax.lax), form.arguments()
    value, gradient = jax.jit(retape.jax.value_and_grad(fun, plan=plan))(x)
    assert_close(value, fun(x))
    assert_close(gradient, jax.grad(form.with_loops(Unrolled))(x))
    if name in ("a snapshot", "fixed time"):
        assert_close(gradient, finite_difference(fun, x), 1e-6)

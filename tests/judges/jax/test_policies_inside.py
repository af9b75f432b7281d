"""A policy keeps what it names, wherever in the function that is made.

The rows are programs whose products stand inside loops, branches and calls, the columns
policies. The oracle is `jax.checkpoint`: by the same policy the compiled gradient has
as many matrix products, and the numbers are those of the function as it is.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name

import retape.jax as rj
from tests.judges.jax.layered import IN_LOOPS, scanned_layers
from tests.judges.jax.layered import WS as LAYERS

X, WS = jnp.sin(jnp.arange(64.0)).reshape(8, 8), jnp.ones((5, 8, 8)) / 9


def _named(c: Any, w: Any) -> Any:
    return jnp.sin(checkpoint_name(c @ w, "h"))


def _scanned(x: Any, ws: Any) -> Any:
    return lax.scan(lambda c, w: (_named(c, w), None), x, ws)[0]


def _branched(x: Any, ws: Any) -> Any:
    deep = lambda: _named(jnp.tanh(x @ ws[0]), ws[1])  # noqa: E731
    return lax.cond(x[1, 1] > 0, deep, lambda: x)


def _switched(x: Any, ws: Any) -> Any:
    ways = [lambda: x, lambda: _named(x, ws[0]), lambda: jnp.cos(x) @ ws[1]]
    return lax.switch((x[1, 1] > 0).astype(int), ways)


def _branch_in_loop(x: Any, ws: Any) -> Any:
    def step(c: Any, w: Any) -> tuple[Any, None]:
        return lax.cond(c[0, 0] > -9, _named, lambda c, w: c, c, w), None

    return lax.scan(step, x, ws)[0]


def _loop_in_loop(x: Any, ws: Any) -> Any:
    return lax.scan(lambda c, _: (_scanned(c, ws), None), x, None, length=3)[0]


def _call_in_loop(x: Any, ws: Any) -> Any:
    return lax.scan(lambda c, w: (jax.jit(_named)(c, w), None), x, ws, reverse=True)[0]


def _counted(x: Any, ws: Any) -> Any:
    return lax.fori_loop(0, 4, lambda i, c: _named(c, ws[i]), x)


PROGRAMS = {
    "scan": _scanned,
    "cond": _branched,
    "switch": _switched,
    "cond in scan": _branch_in_loop,
    "scan in scan": _loop_in_loop,
    "jit in scan": _call_in_loop,
    "fori_loop": _counted,
}

_theirs = jax.checkpoint_policies
POLICIES: dict[str, tuple[Any, Any]] = {
    "names": (
        _theirs.save_only_these_names("h"),
        rj.policies.names(save=["h"]),
    ),
    "dots": (_theirs.dots_saveable, _theirs.dots_saveable),
    "selective": (
        _theirs.dots_with_no_batch_dims_saveable,
        rj.policies.selective(),
    ),
    "everything": (_theirs.everything_saveable, _theirs.everything_saveable),
    "nothing": (_theirs.nothing_saveable, None),
}

FAST = {("scan", "names"), ("cond", "dots"), ("cond in scan", "selective")}


def _pulled(f: Callable[..., Any]) -> Any:
    def both(x: Any, ws: Any) -> Any:
        y, pull = jax.vjp(f, x, ws)
        return y, pull(y)

    return jax.jit(both).lower(X, WS).compile()


def _products(compiled: Any) -> int:
    return len(re.findall(r" dot\(|custom-call\(", compiled.as_text()))


@pytest.mark.parametrize(
    ("row", "column"),
    [
        pytest.param(
            row, column, marks=() if (row, column) in FAST else pytest.mark.slow
        )
        for row in PROGRAMS
        for column in POLICIES
    ],
)
def test_a_policy_acts_inside(row: str, column: str) -> None:
    program, (theirs, ours) = PROGRAMS[row], POLICIES[column]
    wanted = _pulled(jax.checkpoint(program, policy=theirs))
    found = _pulled(rj.checkpoint(program, policy=ours))
    assert _products(found) <= _products(wanted)
    for a, b in zip(
        jax.tree.leaves(found(X, WS)), jax.tree.leaves(wanted(X, WS)), strict=True
    ):
        assert np.allclose(a, b, rtol=1e-5, atol=1e-6)


# What is cut between operations ------------------------------------------------------

CUTTING: dict[str, Any] = {
    "sqrt": rj.policies.sqrt(),
    "every_n": rj.policies.every_n(4),
}


# JAX knows an array of NumPy by its identity, and the type that it gave it first: the
# layers are asked about in one precision throughout.
@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize(
    ("program", "policy"),
    [
        pytest.param(row, column, marks=() if fast else pytest.mark.slow)
        for row in IN_LOOPS
        for column in CUTTING
        for fast in [row is scanned_layers and column == "sqrt"]
    ],
)
def test_a_cut_is_made_inside_of_loops(
    program: Callable[..., Any], policy: str
) -> None:
    """Nothing is warned of, fewer bytes are taken, and the numbers are the same."""
    marked = rj.checkpoint(program, policy=CUTTING[policy])
    plain, found = (
        jax.jit(jax.value_and_grad(f)).lower(LAYERS).compile()
        for f in (program, marked)
    )
    taken = [c.memory_analysis().temp_size_in_bytes for c in (plain, found)]
    assert taken[1] < 0.8 * taken[0]
    for a, b in zip(plain(LAYERS), found(LAYERS), strict=True):
        assert np.allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_name_to_be_offloaded_inside_a_loop_is_warned_of_on_the_cpu() -> None:
    marked = rj.checkpoint(_scanned, policy=rj.policies.names(offload=["h"]))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        jax.eval_shape(marked, X, WS)
    assert jax.default_backend() != "cpu" or any("host" in str(w.message) for w in seen)

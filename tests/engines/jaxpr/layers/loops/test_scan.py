"""`retape.jax.scan` against `jax.lax.scan`: values, derivatives, memory, copies."""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import retape
import retape.jax
from tests.engines.jaxpr.support import seams
from tests.engines.jaxpr.support.seams import Nest, nest

# Memory -----------------------------------------------------------------------


def heavy(h: Any, w: Any) -> tuple[Any, None]:
    return jnp.tanh(jnp.sin(h) @ w), None


def temp(loop: Callable[..., Any], n: int) -> int:
    def run(h: Any, w: Any) -> Any:
        return (loop(heavy, h, w)[0] ** 2).sum()

    args = jnp.ones((64, 16)), jnp.ones((n, 16, 16))
    compiled = jax.jit(jax.grad(run, argnums=(0, 1))).lower(*args).compile()
    return compiled.memory_analysis().temp_size_in_bytes


def by_hand(f: Any, h: Any, w: Any) -> Any:
    """Two nested loops with marked bodies, 8 times 8."""
    mark = functools.partial(jax.checkpoint, prevent_cse=False)
    segment = mark(lambda h, w: lax.scan(mark(f), h, w))
    return lax.scan(segment, h, w.reshape(8, 8, *w.shape[1:]))


@pytest.mark.slow
def test_memory_falls_with_the_levels_and_is_no_more_than_by_hand() -> None:
    two = temp(functools.partial(retape.jax.scan, levels=2), 64)
    one = temp(functools.partial(retape.jax.scan, levels=1), 64)
    assert two <= temp(by_hand, 64)
    assert 2 * two < one < temp(lax.scan, 64)


# The choice of a nest -----------------------------------------------------------


def score(found: Nest, carry: int, slices: int) -> int:
    return found.peak(carry, slices) * (9 if found.rest else 8)


def best(n: int, levels: int, carry: int, slices: int) -> int:
    """The least score of all nests."""
    found = score(Nest((n,)), carry, slices)
    for depth in range(1, levels):
        for inner in itertools.product(range(2, n // 2 + 1), repeat=depth):
            outer, rest = divmod(n, math.prod(inner))
            if outer > 1:
                found = min(found, score(Nest((outer, *inner), rest), carry, slices))
    return found


@pytest.mark.parametrize("bytes_", [(1, 0), (1, 1), (3, 1), (1, 5)])
def test_the_nest_is_the_best_of_all(bytes_: tuple[int, int]) -> None:
    for n in range(1, 60):
        for levels in (1, 2, 3):
            chosen = nest(n, levels, *bytes_)
            assert chosen.length == n and len(chosen.factors) <= levels
            assert score(chosen, *bytes_) == best(n, levels, *bytes_)


@pytest.mark.parametrize(
    "options", [{"segment_length": 16}, {"levels": 2}, {"levels": 3}], ids=str
)
def test_each_level_gathers_the_weights_gradients_as_predicted(options: Any) -> None:
    length, width = 64, 64
    each = 4 * width * width
    if "levels" in options:
        cut = nest(length, options["levels"], 4 * width, each)
    else:
        cut = Nest((4, 16))

    def run(w: Any, h: Any) -> Any:
        return retape.jax.scan(heavy, h, w, **options)[0].sum()

    w = jax.ShapeDtypeStruct((length, width, width), jnp.float32)
    h = jax.ShapeDtypeStruct((1, width), jnp.float32)
    compiled = jax.jit(jax.grad(run)).lower(w, h).compile()
    # Beside what is gathered, one step's own: its weights' gradient, and its weights.
    own = compiled.memory_analysis().temp_size_in_bytes - cut.peak(4 * width, each)
    assert 0 < own < 2 * each


def test_the_search_of_all_nests_finds_a_worse_one() -> None:
    assert score(Nest((12, 8), 1), 1, 0) > best(97, 2, 1, 0)


@pytest.mark.parametrize("n", [10**4, 10**6, 999_983])
def test_long_loops_keep_about_the_root_at_each_level(n: int) -> None:
    for levels in (2, 3):
        assert nest(n, levels).peak(1, 0) <= 1.05 * levels * n ** (1 / levels)


@pytest.mark.parametrize(
    ("length", "segment", "loops"),
    [(13, 4, [3, 4]), (12, 4, [3, 4]), (13, 1, [13]), (13, 20, [13])],
)
def test_segments_are_of_exactly_the_length_asked_for(
    length: int, segment: int, loops: list[int]
) -> None:
    def run(h: Any) -> Any:
        grown = lambda h, _: (jnp.sin(h), None)  # noqa: E731
        scan = functools.partial(retape.jax.scan, segment_length=segment)
        return scan(grown, h, None, length=length)[0]

    made = seams.text(jax.make_jaxpr(run)(0.5))
    found = [int(n) for n in re.findall(r"scan (\d+) times", made) if n != "1"]
    assert found == loops


# What is refused ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (lax.scan, retape.jax.scan),
        (lax.fori_loop, retape.jax.fori_loop),
        (lax.while_loop, retape.jax.while_loop),
    ],
)
def test_every_argument_of_jax_s_own_loops_is_one_of_ours(
    theirs: Any, ours: Any
) -> None:
    wanted, have = (inspect.signature(f).parameters for f in (theirs, ours))
    assert list(have)[: len(wanted)] == list(wanted)
    for name, parameter in wanted.items():
        assert have[name].default == parameter.default, name
        assert have[name].kind == parameter.kind, name


@pytest.mark.parametrize("option", ["levels", "segment_length"])
def test_numpy_s_whole_numbers_will_do(option: str) -> None:
    def made(number: Any) -> str:
        run = lambda h: retape.jax.scan(heavy, h, jnp.ones((9, 2, 2)), **number)  # noqa: E731
        return str(jax.make_jaxpr(run)(jnp.ones((2, 2))))

    assert made({option: np.int8(3)}) == made({option: 3})


def test_a_carry_that_changes_type_is_said_to() -> None:
    with pytest.raises(TypeError, match="Revise the function so that all output types"):
        retape.jax.scan(lambda c, x: (c + 1.5, x), jnp.arange(3), jnp.ones(5))


def test_lengths_that_differ_are_said_to() -> None:
    with pytest.raises(ValueError, match="different leading axis sizes"):
        retape.jax.scan(lambda c, x: (c, None), 0.0, (jnp.ones(3), jnp.ones(4)))

"""Callbacks that are joined, and of whose results only some come back."""

from __future__ import annotations

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
from tests.engines.jaxpr.support.programs import assert_close

X = np.asarray([0.3, 0.8, 1.1])
LIKE = jax.ShapeDtypeStruct((3,), np.float64)
NUMBER = jax.ShapeDtypeStruct((), np.int64)


def first(x: Any) -> Any:
    return [np.sin(x), np.cos(x), np.int64(3)]


def second(a: Any, b: Any, n: Any, x: Any) -> Any:
    assert isinstance(a, jax.Array) and isinstance(n, jax.Array)
    return [np.asarray(a) * n + x, np.asarray(b) - x]


def one_after_the_other(x: Any) -> Any:
    a, b, n = jax.pure_callback(first, [LIKE, LIKE, NUMBER], x)
    return jax.pure_callback(second, [LIKE, LIKE], a, b, n, x)[0]


def twice(x: Any) -> Any:
    a = jax.pure_callback(np.sin, LIKE, x)
    b = jax.pure_callback(np.cos, LIKE, x)
    return jax.pure_callback(lambda b, a, c: b / a + b * c, LIKE, b, a, b)


def all_three(x: Any) -> Any:
    for number in (np.sin, np.cos, np.tanh):
        x = jax.pure_callback(number, LIKE, x)
    return x


def read_twice(x: Any) -> Any:
    """Not joined: the device reads what goes between, too."""
    a = jax.pure_callback(np.sin, LIKE, x)
    return a + jax.pure_callback(np.cos, LIKE, a)


def handed_back(x: Any) -> Any:
    a = jax.pure_callback(np.sin, LIKE, x)
    return a, jax.pure_callback(np.cos, LIKE, a)


def in_a_branch(x: Any) -> Any:
    return lax.cond(x[0] > 0, one_after_the_other, lambda x: x, x)


CALLED = re.compile(r"(?:%\w+:(\d+)|%\w+) = \S*custom_call @\w*python_cpu_callback")


def results_of(program: Callable[..., Any]) -> list[int]:
    """How many arrays each callback hands back, in the program as it is compiled."""
    text = jax.jit(program).lower(X).as_text()
    return [int(found or 1) for found in CALLED.findall(text)]


@pytest.mark.slow("twice-before1-after1")
@pytest.mark.parametrize(
    ("program", "before", "after"),
    [
        (one_after_the_other, [3, 2], [1]),
        (twice, [1, 1, 1], [1]),
        (all_three, [1, 1, 1], [1]),
        (read_twice, [1, 1], [1, 1]),
        (handed_back, [1, 1], [1, 1]),
        (in_a_branch, [3, 2], [1]),
        (lambda x: jnp.sin(x), [], []),
    ],
)
def test_only_what_is_read_comes_back(
    program: Callable[..., Any], before: list[int], after: list[int]
) -> None:
    ours = retape.jax.checkpointed(program)
    assert results_of(program) == before
    assert results_of(ours) == after
    assert_close(jax.jit(ours)(X), program(X), 1e-15)


def loss(x: Any, look: Callable[[Any], Any]) -> Any:
    turn = lambda c: (c[0] + 1, look(jnp.sin(c[1]) * 1.3))  # noqa: E731
    going = lambda c: (c[0] < 7) & (c[1][0] < 5.0)  # noqa: E731
    return jnp.sum(look(lax.while_loop(going, turn, (0, x))[1]) ** 2)


@jax.custom_jvp
def watched(x: Any) -> Any:
    """The same array, if all is well: a check as third-party code makes it."""

    def error() -> Any:
        found = jax.pure_callback(fail, [LIKE, LIKE], x[0])
        return jax.pure_callback(lambda a, b: a, LIKE, *found)

    return lax.cond(x[0] > 1.2, error, lambda: x)


watched.defjvp(lambda x, t: (watched(*x), *t))


def fail(value: Any) -> Any:
    raise ValueError(f"it was {float(value):.2f}")


def test_a_check_is_made_and_nothing_else() -> None:
    plan = retape.fixed_space(snapshots=2, stage=2)
    gradient = jax.jit(retape.jax.grad(lambda x: loss(x, watched), plan=plan))
    assert_close(gradient(X), jax.jacfwd(lambda x: loss(x, lambda x: x))(X))
    with pytest.raises(Exception, match="it was 1.30"):
        jax.block_until_ready(gradient(np.asarray([np.pi / 2, 0.8, 1.1])))


@pytest.mark.parametrize(
    "values", [[np.ones(3), np.ones(3), 2.0], [np.ones(2)] * 2 + [1], [np.ones(3)]]
)
def test_what_was_not_declared_is_refused(values: Any) -> None:
    """Though it is handed on in the host, where no compiler looks at it."""

    def program(x: Any) -> Any:
        made = jax.pure_callback(lambda _: values, [LIKE, LIKE, NUMBER], x)
        return jax.pure_callback(second, [LIKE, LIKE], *made, x)[0]

    run = jax.jit(retape.jax.checkpointed(program))
    assert results_of(run) == [1]
    with pytest.raises(Exception, match="result_shape_dtypes"):
        jax.block_until_ready(run(X))

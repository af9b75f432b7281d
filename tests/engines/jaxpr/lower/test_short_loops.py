"""Loops of a few trips inside a step: stored where opening them takes more memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import retape
import retape.jax

SIZE = 5_000
STATE = 8 * SIZE
FEW = retape.fixed_space(snapshots=3, stage=1)
Y0 = np.sin(np.linspace(0.0, 9.0, SIZE))
Step = Callable[[Any, Any], Any]


def stages(trips: int, unsure: bool = False) -> Step:
    """A step of an explicit method: each stage reads all slopes before it."""
    lower = jnp.tril(jnp.full((trips, trips), 0.1), -1)

    def step(y: Any, first: Any) -> Any:
        def stage(carry: Any) -> Any:
            i, slopes = carry
            return i + 1, slopes.at[i].set(jnp.sin(3 * (y + lower[i] @ slopes)))

        start = jnp.where(first, 0, 1) if unsure else 0
        begin = start, jnp.zeros((trips, SIZE))
        return y + 0.1 * jax.lax.while_loop(lambda c: c[0] < trips, stage, begin)[
            1
        ].sum(0)

    return step


def layers(y: Any, first: Any) -> Any:
    """A step of many operations on a small carry: it stores far more than its carry."""

    def layer(_: Any, y: Any) -> Any:
        for _ in range(4):
            y = jnp.tanh(y) * jnp.cos(y)
        return y

    return jax.lax.fori_loop(0, 8, layer, y)


def run(step: Step, times: int = 5) -> Callable[[Any], Any]:
    """So many steps; the number is not known to the engine."""

    def of(y: Any) -> Any:
        test = lambda s: s[0] < times + jnp.int32(y[0] > 99)  # noqa: E731
        turn = lambda s: (s[0] + 1, step(s[1], s[0] == 0))  # noqa: E731
        return jnp.mean(jax.lax.while_loop(test, turn, (0, y))[1] ** 2)

    return of


@pytest.mark.parametrize(
    ("step", "loops"),
    [
        pytest.param(stages(7), 1, id="stages"),
        pytest.param(stages(7, unsure=True), 1, id="six or seven stages"),
        # A snapshot inside would hold as many slopes; it stores more than its carry.
        pytest.param(stages(17), 2, id="longer"),
        # What a loop of eight layers stores is more than the grain allows.
        pytest.param(layers, 2, id="stores far more"),
    ],
)
def test_the_stages_of_a_step_are_no_place_for_snapshots(
    step: Step, loops: int
) -> None:
    found = retape.jax.explain(run(step), Y0, plan=FEW)
    assert found.loops == loops
    # The state and a few counters.
    assert loops > 1 or found.capsule_bytes < 1.01 * STATE


@pytest.mark.slow
@pytest.mark.parametrize("unsure", [False, True])
def test_their_gradient_is_that_of_forward_mode(unsure: bool) -> None:
    loss = run(stages(7, unsure))
    gradient = jax.jit(retape.jax.grad(loss, plan=FEW))(Y0)
    along = jnp.cos(jnp.arange(SIZE))
    _, slope = jax.jit(lambda y: jax.jvp(loss, (y,), (along,)))(Y0)
    np.testing.assert_allclose(gradient @ along, slope, rtol=1e-10)


@pytest.mark.slow
def test_they_take_less_than_opened() -> None:
    """Seven stages: a snapshot inside would hold seven slopes."""

    def temporaries(step: Any) -> int:
        gradient = jax.jit(retape.jax.grad(run(step), plan=FEW))
        memory: Any = gradient.lower(Y0).compile().memory_analysis()
        return memory.temp_size_in_bytes

    # Longer than what is stored: opened, as all were.
    assert temporaries(stages(7)) < temporaries(stages(17)) / 3

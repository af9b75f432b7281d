"""What a body says is said once a step, however often the step is run."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import retape
import retape.equinox
import retape.jax
from retape.jax import policies

STEPS = 6
PLAN = retape.fixed_space(snapshots=2, stage=1)
OPTIONS: dict[str, dict[str, Any]] = {
    "by default": {},
    "in one level": {"levels": 1},
    "in three levels": {"levels": 3},
    "in segments": {"segment_length": 4},
    "with a policy": {"policy": policies.selective()},
    "under a plan": {"plan": PLAN},
}

Body = Callable[[Any, Any], Any]


def scan(step: Body, x: Any, **options: Any) -> Any:
    body = lambda c, i: (step(i, c), None)  # noqa: E731
    return retape.jax.scan(body, x, jnp.arange(STEPS), **options)[0]


def fori_loop(step: Body, x: Any, **options: Any) -> Any:
    return retape.jax.fori_loop(0, STEPS, step, x, **options)


def _counted(more: Callable[[Any], Any], step: Body, x: Any, **options: Any) -> Any:
    body = lambda c: (c[0] + 1, step(c[0], c[1]))  # noqa: E731
    return retape.jax.while_loop(more, body, (0, x), **options)[1]


def while_loop(step: Body, x: Any, **options: Any) -> Any:
    return _counted(lambda c: c[0] < STEPS, step, x, **options)


def ended_by_data(step: Body, x: Any, **options: Any) -> Any:
    return _counted(lambda c: (c[0] < STEPS) & (c[1] < 9.0), step, x, **options)


def of_equinox(step: Body, x: Any, **options: Any) -> Any:
    return retape.equinox.while_loop(
        lambda c: c[0] < STEPS,
        lambda c: (c[0] + 1, step(c[0], c[1])),
        (jnp.int32(0), x),
        kind="checkpointed",
        **options,
    )[1]


def scan_of_equinox(step: Body, x: Any, **options: Any) -> Any:
    body = lambda c, i: (step(i, c), None)  # noqa: E731
    steps = jnp.arange(STEPS)
    return retape.equinox.scan(body, x, steps, kind="checkpointed", **options)[0]


LOOPS = {
    "scan": scan,
    "fori_loop": fori_loop,
    "while_loop": while_loop,
    "ended by data": ended_by_data,
    "equinox while_loop": of_equinox,
    "equinox scan": scan_of_equinox,
}
UNDER_PLANS = ("ended by data", "equinox while_loop", "equinox scan")
"""What takes no option but a plan."""
FAST = [("while_loop", "in segments"), ("ended by data", "under a plan")]
CELLS = [
    pytest.param(loop, options, marks=() if fast else pytest.mark.slow)
    for loop in LOOPS
    for options in OPTIONS
    if loop not in UNDER_PLANS or options in ("by default", "under a plan")
    for fast in [loop == "scan" or (loop, options) in FAST]
]
CALLS: dict[str, Callable[[Callable[[Any], Any]], Callable[[Any], Any]]] = {
    "run": lambda f: f,
    "differentiated": jax.grad,
    "compiled": lambda f: jax.jit(jax.grad(f)),
}


def told(loop: str, options: str, call: str, *, deep: bool) -> list[int]:
    """What the body of a loop says, its steps' numbers in order."""
    said: list[int] = []

    def tell(i: Any, x: Any) -> Any:
        jax.debug.callback(lambda i: said.append(int(i)), i)
        return jnp.sin(x)

    def step(i: Any, x: Any) -> Any:
        return lax.cond(x < 9.0, tell, lambda i, x: x, i, x) if deep else tell(i, x)

    run = CALLS[call](lambda x: LOOPS[loop](step, x, **OPTIONS[options]))
    run(jnp.float32(0.5))
    jax.effects_barrier()
    return sorted(said)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(("loop", "options"), CELLS)
def test_a_step_says_once_what_it_says(loop: str, options: str, call: str) -> None:
    assert told(loop, options, call, deep=False) == list(range(STEPS))


@pytest.mark.parametrize(("loop", "options"), CELLS)
def test_a_branch_inside_of_a_step_says_once_what_it_says(
    loop: str, options: str
) -> None:
    assert told(loop, options, "differentiated", deep=True) == list(range(STEPS))

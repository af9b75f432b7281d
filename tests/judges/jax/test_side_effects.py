"""What a body says is said once a step, however often the step is run."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import retape
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


LOOPS = {"scan": scan, "fori_loop": fori_loop}
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
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("loop", LOOPS)
def test_a_step_says_once_what_it_says(loop: str, options: str, call: str) -> None:
    assert told(loop, options, call, deep=False) == list(range(STEPS))


@pytest.mark.parametrize("options", OPTIONS)
def test_a_branch_inside_of_a_step_says_once_what_it_says(options: str) -> None:
    assert told("scan", options, "differentiated", deep=True) == list(range(STEPS))

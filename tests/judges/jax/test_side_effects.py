"""What a body says is said once a step, however often the step is run."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from tests.judges.jax.loops import CELLS, LOOPS, OPTIONS, STEPS

FAST = [("while_loop", "in segments"), ("ended by data", "under a plan")]
PARAMETERS = [
    pytest.param(loop, options, marks=() if fast else pytest.mark.slow)
    for loop, options in CELLS
    for fast in [(loop == "scan" and "host" not in options) or (loop, options) in FAST]
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
@pytest.mark.parametrize(("loop", "options"), PARAMETERS)
def test_a_step_says_once_what_it_says(loop: str, options: str, call: str) -> None:
    assert told(loop, options, call, deep=False) == list(range(STEPS))


@pytest.mark.parametrize(("loop", "options"), PARAMETERS)
def test_a_branch_inside_of_a_step_says_once_what_it_says(
    loop: str, options: str
) -> None:
    assert told(loop, options, "differentiated", deep=True) == list(range(STEPS))

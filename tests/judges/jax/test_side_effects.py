"""What a body says is said once a step, however often the step is run."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from tests.judges.jax.loops import CELLS, LOOPS, OPTIONS, STEPS
from tests.judges.pairwise import dealt

OFTEN = ("scan", "equinox while_loop")
"""Of these each option is asked on each change, of the others what stands here."""
FAST = [("while_loop", "in segments"), ("ended by data", "under a plan")]
DEEP = [*FAST, ("scan", "by default"), ("equinox while_loop", "by default")]
"""With a branch in a step."""


def marked(cell: tuple[str, str]) -> list[Any]:
    loop, options = cell
    fast = (loop in OFTEN and "host" not in options) or cell in FAST
    return [] if fast else [pytest.mark.slow]


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


@pytest.mark.parametrize(
    ("loop", "options", "call"),
    [
        pytest.param(*cell, call, marks=[*marked(cell), *dealt_out.marks])
        for dealt_out in dealt(CELLS, list(CALLS))
        for cell, call in [dealt_out.values]
    ],
)
def test_a_step_says_once_what_it_says(loop: str, options: str, call: str) -> None:
    assert told(loop, options, call, deep=False) == list(range(STEPS))


@pytest.mark.parametrize(
    ("loop", "options"),
    [pytest.param(*c, marks=[] if c in DEEP else [pytest.mark.slow]) for c in CELLS],
)
def test_a_branch_inside_of_a_step_says_once_what_it_says(
    loop: str, options: str
) -> None:
    assert told(loop, options, "differentiated", deep=True) == list(range(STEPS))

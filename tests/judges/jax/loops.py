"""Loops of every face, by one step, and the options that they take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

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
    "on the host": {"offload": "host"},
    "under a plan": {"plan": PLAN},
    "under a plan on the host": {"plan": PLAN, "offload": "host"},
}
UNDER_PLANS = ("ended by data", "equinox while_loop", "equinox scan")
"""What takes no option but a plan."""

Step = Callable[[Any, Any], Any]


def _scanned(module: Any, step: Step, x: Any, n: Any, **options: Any) -> Any:
    body = lambda c, _: ((c[0] + 1, step(*c)), None)  # noqa: E731
    return module.scan(body, (jnp.int32(0), x), None, length=n, **options)[0][1]


def _while(more: Callable[[Any], Any], step: Step, x: Any, **options: Any) -> Any:
    body = lambda c: (c[0] + 1, step(*c))  # noqa: E731
    loop = options.pop("loop", retape.jax.while_loop)
    return loop(more, body, (np.int32(0), x), **options)[1]


def scan(step: Step, x: Any, n: Any = STEPS, **options: Any) -> Any:
    return _scanned(retape.jax, step, x, n, **options)


def fori_loop(step: Step, x: Any, n: Any = STEPS, **options: Any) -> Any:
    return retape.jax.fori_loop(0, n, step, x, **options)


def while_loop(step: Step, x: Any, n: Any = STEPS, **options: Any) -> Any:
    return _while(lambda c: c[0] < n, step, x, **options)


def ended_by_data(step: Step, x: Any, n: Any = STEPS, **options: Any) -> Any:
    more = lambda c: (c[0] < n) & jnp.all(c[1] < 9.0)  # noqa: E731
    return _while(more, step, x, **options)


def of_equinox(step: Step, x: Any, n: Any = STEPS, **options: Any) -> Any:
    how: dict[str, Any] = {"loop": retape.equinox.while_loop, "kind": "checkpointed"}
    return _while(lambda c: c[0] < n, step, x, **how, **options)


def scan_of_equinox(step: Step, x: Any, n: Any = STEPS, **options: Any) -> Any:
    return _scanned(retape.equinox, step, x, n, kind="checkpointed", **options)


LOOPS: dict[str, Callable[..., Any]] = {
    "scan": scan,
    "fori_loop": fori_loop,
    "while_loop": while_loop,
    "ended by data": ended_by_data,
    "equinox while_loop": of_equinox,
    "equinox scan": scan_of_equinox,
}
CELLS = [
    (loop, options)
    for loop in LOOPS
    for options in OPTIONS
    if loop not in UNDER_PLANS or options in ("by default", "under a plan")
]


def unrolled(step: Step, x: Any, n: int = STEPS) -> Any:
    """The same by Python."""
    for i in range(n):
        x = step(i, x)
    return x

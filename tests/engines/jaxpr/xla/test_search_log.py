"""Searches for a budget tell what they compile, to whoever listens."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import retape
import retape.jax

W = np.eye(48) * 0.5


def layers(w: Any) -> Any:
    for _ in range(6):
        w = jnp.tanh(jnp.sin(w @ w))
    return jnp.sum(w)


def looped(w: Any) -> Any:
    turn = lambda w: jnp.tanh(jnp.sin(w @ w) + 1.1 * w)  # noqa: E731
    return jnp.sum(jax.lax.while_loop(lambda w: w[0, 0] < 0.9, turn, w))


SEARCHES: dict[str, Callable[[], Any]] = {
    "policy": lambda: jax.grad(
        retape.jax.checkpoint(layers, policy=retape.within("150 kB"))
    )(W),
    "plan": lambda: retape.jax.grad(looped, plan=retape.within("220 kB"))(W),
    "planner": lambda: retape.jax.advise(layers, W, memory="300 kB"),
}


@pytest.mark.slow
@pytest.mark.parametrize("search", SEARCHES)
def test_each_program_is_told(search: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "retape.jax"):
        SEARCHES[search]()
    told = [r.getMessage() for r in caplog.records if r.name == "retape.jax"]
    assert told and all("compiled in" in text and "takes" in text for text in told)

"""Buffers of Equinox's loops, in the loops that take their place.

The rows are ways to use a buffer, the columns what is asked of it. The oracle is
Equinox's own loop, by the same program.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import retape.equinox

eqxi = pytest.importorskip("equinox.internal")

Loop = Callable[..., Any]


def _nested(loop: Loop, x: Any, *, inner: bool, after: bool = False) -> Any:
    loop = partial(loop, kind="checkpointed", max_steps=4)

    def outer(carry: Any) -> Any:
        i, v = carry
        step = lambda c: (c[0], c[1] + 1, c[2].at[2 * c[0] + c[1]].set(x))  # noqa: E731
        chosen = (lambda c: c[2]) if inner else None
        _, _, v = loop(lambda c: c[1] < 2, step, (i, 0, v), buffers=chosen)
        return i + 1, v.at[i].set(x * x, pred=i > 0) if after else v

    out = loop(lambda c: c[0] < 2, outer, (0, jnp.zeros(4)), buffers=lambda c: c[1])
    return out[1] @ jnp.arange(1.0, 5.0)


def _set_by(step: Callable[..., Any], loop: Loop, x: Any) -> Any:
    body = lambda c: (c[0] + 1, step(c[1], c[0], x))  # noqa: E731
    start = (0, jnp.zeros(4))
    how: dict[str, Any] = {"kind": "checkpointed", "max_steps": 4}
    out = loop(lambda c: c[0] < 3, body, start, buffers=lambda c: c[1], **how)
    return out[1] @ jnp.arange(1.0, 5.0)


ROWS: dict[str, Callable[..., Any]] = {
    "of both loops": partial(_nested, inner=True),
    "of the outer loop": partial(_nested, inner=False),
    "set": partial(_set_by, lambda v, i, x: v.at[i].set(x)),
    "set if": partial(_set_by, lambda v, i, x: v.at[i].set(x, pred=i > 0)),
    "buffer_at_set": partial(
        _set_by, lambda v, i, x: eqxi.buffer_at_set(v, i, x, pred=i > 0)
    ),
    "its type": partial(
        _set_by, lambda v, i, x: v.at[i].set(x.astype(v.dtype) * v.size * len(v.shape))
    ),
}


@pytest.mark.slow("its type", "of both loops", "of the outer loop", "set")
@pytest.mark.parametrize("row", ROWS)
def test_gradients_are_equinox_s(row: str) -> None:
    found, wanted = (
        jax.value_and_grad(partial(ROWS[row], loop))(jnp.array(2.0))
        for loop in (retape.equinox.while_loop, eqxi.while_loop)
    )
    assert np.allclose(found, wanted, rtol=1e-6)


def test_a_buffer_is_one_after_an_inner_loop() -> None:
    loss = partial(_nested, retape.equinox.while_loop, inner=False, after=True)
    # Rows 0 and 1, then 2 and 3 are x; row 1 is x * x in the end: 8 x + 2 x * x.
    assert jax.grad(loss)(jnp.array(3.0)) == pytest.approx(8 + 4 * 3.0)

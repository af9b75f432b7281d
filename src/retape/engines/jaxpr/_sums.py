"""Long sums as four running sums side by side.

XLA's CPU compiler rewrites a sum over more than 32 elements into windows of 32, whose
code it unrolls: on the paper's example (Fig. 8) a fifth of all compiling. A sum of
several arrays at once it leaves alone:

    before:  s = sum x
    after:   a, b, c, d = sum (x[:k], x[k:2k], x[2k:3k], x[3k:]);  s = (a + b) + (c + d)

Four additions are under way at any time, where a plain running sum waits for each: the
same example runs in three quarters of the time. Rounding grows with the length of one
part; sums for which that matters are too long for a kernel anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend import core

from ._rewrite import inside

PARTS = 4
WINDOW = 32
"""Elements that XLA sums up as they are."""


def in_parts(closed: core.ClosedJaxpr) -> core.ClosedJaxpr:
    """The program with its long sums, however deep, in parts.

    Equations are exchanged in place; nothing is traced again.
    """
    eqns = [_exchanged(e) for e in closed.eqns]
    if all(new is old for new, old in zip(eqns, closed.eqns, strict=True)):
        return closed
    return closed.replace(jaxpr=closed.jaxpr.replace(eqns=eqns))


def is_long(eqn: core.JaxprEqn) -> bool:
    """Whether an equation is a sum that `in_parts` exchanges."""
    if eqn.primitive.name != "reduce_sum":
        return False
    given: Any = eqn.invars[0].aval
    long = any(given.shape[i] > WINDOW for i in eqn.params["axes"])
    return long and np.issubdtype(given.dtype, np.inexact)


def _exchanged(eqn: core.JaxprEqn) -> core.JaxprEqn:
    if not is_long(eqn):
        params = {k: inside(v, in_parts) for k, v in eqn.params.items()}
        same = all(params[k] is v for k, v in eqn.params.items())
        return eqn if same else eqn.replace(params=params)
    aval: Any = eqn.invars[0].aval
    made = _made(aval.shape, aval.dtype, tuple(eqn.params["axes"]))
    return made.replace(invars=eqn.invars, outvars=eqn.outvars, ctx=eqn.ctx)


@lru_cache(maxsize=256)
def _made(shape: tuple[int, ...], dtype: Any, axes: tuple[int, ...]) -> core.JaxprEqn:
    """The call that sums up in parts what has this type."""
    add_up = jax.jit(lambda x: side_by_side(x, axes))
    with jax.enable_x64(True):
        (call,) = jax.make_jaxpr(add_up)(jax.ShapeDtypeStruct(shape, dtype)).eqns
    return call


def side_by_side(x: Any, axes: Sequence[int]) -> Any:
    """The sum over these axes, of which the longest is cut into four parts.

    Example:
        >>> import numpy as np
        >>> side_by_side(np.arange(10.0), (0,)).item()
        45.0
    """
    longest = max(axes, key=lambda i: x.shape[i])
    length = -(-x.shape[longest] // PARTS)
    short = [(0, 0, 0)] * x.ndim
    short[longest] = (0, PARTS * length - x.shape[longest], 0)
    zero = np.zeros((), x.dtype)
    whole = lax.pad(x, zero, short)
    parts = [
        lax.slice_in_dim(whole, k * length, (k + 1) * length, axis=longest)
        for k in range(PARTS)
    ]
    a, b, c, d = lax.reduce(
        tuple(parts),
        (zero,) * PARTS,
        lambda s, t: tuple(map(lax.add, s, t)),
        tuple(axes),
    )
    return (a + b) + (c + d)

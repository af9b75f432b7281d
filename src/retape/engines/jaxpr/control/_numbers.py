"""The operations of `retape.schedule._binomial.Numbers`, traced, in two forms.

The rules by which a schedule cuts and places are written once, there and in
`retape.schedule`. Here is what they are written in: for scalars inside an XLA program,
of either of the types that `control/_settings` chooses from.

A host finds the least number of sweeps by a loop (`TRACED`). Its end depends on L, and
an accelerator would wait at each turn: there (`loopless`) beta is looked up in a table,
and t is how many entries of a row are below L.

Beyond a row's end, two snapshots and 33,000 stages or three and three million, t is too
small, and a cut is not the best. It is one all the same: it lies between the first
stage and the last, so that advances are lost and nothing else.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from retape.engines.jaxpr.control._settings import INT
from retape.engines.jaxpr.jaxprs._scalar_ops import at_least, at_most, same_types, where
from retape.schedule._binomial import Numbers


def over(a: Any, b: Any) -> Any:
    """`a // b` for numbers that are not negative.

    JAX's own `//` rounds towards minus infinity, a dozen operations each time; all of
    them would be compiled into every sweep.
    """
    return lax.div(*same_types(a, b))


def sweeps(length: Any, snapshots: Any) -> tuple[Any, Any]:
    """The least t with beta(s, t) >= length, and that beta; beta(s, t) = C(s+t, s)."""
    none = length.dtype.type(0)

    def more(c: tuple[Any, Any]) -> tuple[Any, Any]:
        t, reach = c[0] + 1, c[1]
        # Exact: t! divides the product of t consecutive numbers.
        return t, over(reach * (snapshots + t), t)

    return lax.while_loop(lambda c: c[1] < length, more, (none, none + 1))


TRACED = Numbers(where, at_least, at_most, over, sweeps)
"""For a host."""


_MOST = 1 << 40
"""More stages than are run: products with numbers of snapshots stay below 2**63."""
_FEW_SNAPSHOTS = 64
"""Snapshots from which on t is at most 11: beta(64, 11) is more than `_MOST`."""
_LONG_ROW, _SHORT_ROW = 256, 12
"""Entries of a row for fewer snapshots, and for more."""


@cache
def reach_table(rows: int, columns: int) -> np.ndarray:
    """beta(s, t) for fewer snapshots and sweeps than those, cut off at 2**40.

    Examples:
        >>> reach_table(4, 4).tolist()
        [[1, 1, 1, 1], [1, 2, 3, 4], [1, 3, 6, 10], [1, 4, 10, 20]]
    """
    table = np.ones((rows, columns), INT)
    for s in range(1, rows):
        # beta(s, t) = beta(s, t - 1) + beta(s - 1, t): a running sum.
        table[s] = np.minimum(np.cumsum(table[s - 1]), _MOST)
    return table


@cache
def loopless(snapshots: int) -> Numbers:
    """For an accelerator, with so many snapshots at most."""
    few = partial(
        _looked_up, reach_table(min(snapshots + 1, _FEW_SNAPSHOTS), _LONG_ROW)
    )
    if snapshots < _FEW_SNAPSHOTS:
        return TRACED._replace(sweeps=few)
    many = partial(_looked_up, reach_table(snapshots + 1, _SHORT_ROW))

    def either(length: Any, snapshots: Any) -> tuple[Any, Any]:
        """For numbers or arrays of them."""
        pairs = zip(few(length, snapshots), many(length, snapshots), strict=True)
        t, reach = (where(snapshots < _FEW_SNAPSHOTS, a, b) for a, b in pairs)
        return t, reach

    return TRACED._replace(sweeps=either)


def _looked_up(table: np.ndarray, length: Any, snapshots: Any) -> tuple[Any, Any]:
    """What `sweeps` returns, for numbers or arrays of them."""
    kind = length.dtype
    table = np.minimum(table, np.iinfo(kind).max).astype(kind)
    rows = jnp.take(jnp.asarray(table), snapshots, axis=0, mode="clip")
    short = rows < lax.expand_dims(length, (jnp.ndim(length),))
    t = at_most(jnp.sum(short, axis=-1, dtype=kind), table.shape[1] - 1)
    index = lax.expand_dims(t, (t.ndim,))
    reach = jnp.take_along_axis(rows, index, axis=-1, mode="clip")
    return t, lax.squeeze(reach, (t.ndim,))

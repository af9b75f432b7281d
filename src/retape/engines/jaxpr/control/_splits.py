"""The integers that steer a sweep, as traced arithmetic.

The same rules as in `retape.schedule`, on scalars inside an XLA program, of either of
the types that `control/_settings` chooses from; a test holds both to the same stream of
actions. Lengths and positions are in stages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax import lax

from retape.engines.jaxpr.jaxprs._scalar_ops import at_least, at_most, same_types, where

Sweeps = Callable[[Any, Any], tuple[Any, Any]]
"""From a length and a number of snapshots to what `sweeps` returns."""


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


def binomial_split(
    length: Any, snapshots: Any, sweeps_left: Any, count_sweeps: Sweeps = sweeps
) -> Any:
    """Where to cut `length >= 2` stages with `snapshots >= 2` slots.

    Attains the fewest advances, and among those the fewest writes: the rule of
    Griewank and Walther's Algorithm 799. With t as in `sweeps`:

        length <= beta(s, t-1) + beta(s-2, t-1)   ->  beta(s, t-2)
        length >= beta(s, t) - beta(s-3, t)       ->  beta(s, t-1)
        between                                   ->  length - beta(s-1, t-1)
                                                             - beta(s-2, t-1)
    """
    del sweeps_left
    s = snapshots
    t, reach = count_sweeps(length, s)
    full = over(reach * t, s + t)  # beta(s, t-1)
    right = over(full * s, at_least(s + t - 1, 1))  # beta(s-1, t-1)
    spare = where(s > 2, over(right * (s - 1), at_least(s + t - 2, 1)), 1)
    least = at_least(over(right * at_least(t - 1, 0), s), 1)  # beta(s, t-2)
    slack = where(
        s > 3, over(spare * (s - 2), at_least(t, 1)), where(s == 3, t.dtype.type(1), 0)
    )
    between = where(length >= reach - slack, full, length - right - spare)
    return where(length <= full + spare, least, between)


def bisection_split(length: Any, snapshots: Any, sweeps_left: Any) -> Any:
    """The middle; the left half is the longer one."""
    del snapshots, sweeps_left
    return over(length + 1, 2)


def treeverse_split(length: Any, snapshots: Any, sweeps_left: Any) -> Any:
    """The paper's own rule, `ceil(tau * L / (delta + tau))`, and at most `L - 1`."""
    both = at_least(snapshots + sweeps_left, 1)
    cut = over(sweeps_left * length + both - 1, both)
    return at_most(length - 1, cut)


SPLITS = {
    "binomial": binomial_split,
    "bisection": bisection_split,
    "treeverse": treeverse_split,
}

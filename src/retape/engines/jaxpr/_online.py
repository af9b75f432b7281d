"""Placing snapshots while the end of the run is unknown, as traced arithmetic.

A transcription of `retape.schedule.LeastCost`: Stumm and Walther's placement, which is
as good as knowing the end for up to C(s+2, 2) stages, then the cheapest eviction but at
a few stages. Its docstring has the rules and the symbols; a test holds both to the same
decisions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...schedule import departures
from ._control import FOREVER, INT, over
from ._numbers import at_least, at_most, where
from ._rows import row


class Placement(NamedTuple):
    """The controller's state, and what it decided last."""

    at: Any
    """int64[s + 1]: stages at which the snapshots stand, oldest first."""
    slot: Any
    """int32[s + 1]: the slots that they are in; from `held` on, free ones.

    In the first of the free ones the capsule waits that is asked about.
    """
    held: Any
    """int32: how many there are."""
    phase: Any
    base: Any
    keep: Any
    """bool: whether the stage asked about is kept, as the last."""


def begin(snapshots: int) -> Placement:
    """The state before stage 0."""
    zero = jnp.zeros((), INT)
    return Placement(
        at=jnp.zeros(snapshots + 1, INT),
        slot=jnp.arange(snapshots + 1, dtype=np.int32),
        held=jnp.int32(0),
        phase=zero,
        base=zero,
        keep=jnp.asarray(False),
    )


def place(state: Placement, stage: Any) -> Placement:
    """Decide about the capsule before `stage`, which is not the last."""
    snapshots = state.at.shape[0] - 1
    s = INT(snapshots)
    i = stage - state.base
    settled = state.phase == s
    pause = ~settled & (i == s - state.phase)
    evicted = where(settled, cheapest(state.at[:-1], stage), s - 1 - i)
    for at, other in departures(snapshots).items():
        evicted = where(stage == at, other, evicted)
    first = state.phase == 0
    # Nothing is evicted in the first phase: the new snapshot goes behind the others.
    out = where(first, state.held.astype(INT), evicted)
    keep = ~pause & (out >= 0)
    moved = _evict(state, at_least(out, 0), stage)
    return Placement(
        at=where(keep, moved.at, state.at),
        slot=where(keep, moved.slot, state.slot),
        held=where(keep & first, state.held + 1, state.held),
        phase=where(pause, state.phase + 1, state.phase),
        base=where(pause, stage + 1, state.base),
        keep=keep,
    )


def _evict(state: Placement, j: Any, stage: Any) -> Placement:
    """Take out entry `j`, close the gap, and put the new one behind the last held.

    The new one is where it waited, and the slot of the old one is free.
    """
    index = lax.iota(np.int64, state.at.shape[0])
    held = state.held.astype(INT)
    last = at_least(held - (state.phase > 0), 0)
    gap = (index >= j) & (index < last)

    def close(array: Any, new: Any) -> Any:
        after = where(gap, _left(array), array)
        return where(index == last, new, after)

    freed = where(index == held, row(state.slot, j), state.slot)
    slot = where(index > last, freed, close(state.slot, row(state.slot, held)))
    return state._replace(at=close(state.at, stage), slot=slot)


def _left(array: Any) -> Any:
    """Every entry one place to the left; the last one stays."""
    return lax.concatenate([array[1:], array[-1:]], 0)


def _right(array: Any) -> Any:
    """Every entry one place to the right, behind a zero."""
    return lax.pad(array[:-1], jnp.zeros((), array.dtype), [(1, 0, 0)])


def cheapest(at: Any, stage: Any) -> Any:
    """Which of s snapshots to evict for one at `stage`; -1 if none.

    Costs suppose that the run ends after the following stage.
    """
    if at.shape[0] == 1:
        return INT(-1)
    # A loop over numbers compiles in a quarter of the time. An accelerator would launch
    # a kernel for each of them.
    one_by_one = jax.default_backend() == "cpu"
    return _one_by_one(at, stage) if one_by_one else _all_at_once(at, stage)


class _Search(NamedTuple):
    """The costs of evicting each snapshot, gone through from the oldest on."""

    turn: Any
    """Three for each snapshot i: its gap with one slot more, joined, and as it is."""
    before: Any
    """The sum of now[: i - 1] - more[: i + 1]: what i's cost has besides `joined`."""
    last: Any
    """now[i - 1]"""
    saved: Any
    """The sum of more - now: what the costs lack, against evicting nothing."""
    least: Any
    chosen: Any


def _one_by_one(at: Any, stage: Any) -> Any:
    s = at.shape[0]

    def turn(found: _Search) -> _Search:
        i, question = lax.div(found.turn, INT(3)), lax.rem(found.turn, INT(3))
        more, joined, now = (question == q for q in range(3))
        newest = i == s - 1
        end = where(newest, stage, row(at, at_most(i + 1, INT(s - 1))))
        begin = row(at, where(joined, at_least(i - 1, 0), i))
        a = advances(end - begin, s - i + ~now)
        before = found.before - where(more, a, 0)
        cost = where(joined & (i > 0), before + a, FOREVER)
        rest = stage + 1 - row(at, INT(s - 1))
        kept = where(newest, over(rest * (rest - 1), 2), a)
        saved = found.saved + where(more, a, 0) - where(now, kept, 0)
        better = cost <= found.least
        return _Search(
            found.turn + 1,
            before + where(now, found.last, 0),
            where(now, a, found.last),
            saved,
            where(better, cost, found.least),
            where(better, i, found.chosen),
        )

    zero = jnp.zeros((), INT)
    first = _Search(zero, zero, zero, zero, FOREVER, INT(-1))
    last = lax.while_loop(lambda found: found.turn < 3 * s, turn, first)
    return where(last.least + last.saved < 0, last.chosen, INT(-1))


def _all_at_once(at: Any, stage: Any) -> Any:
    s = at.shape[0]
    i = lax.iota(np.int64, s)
    gaps = where(i == s - 1, stage, _left(at)) - at
    # One row for each question: as it is, with one slot more, and joined to the left.
    lengths = lax.concatenate([gaps[None], gaps[None], (gaps + _right(gaps))[None]], 0)
    extra = lax.iota(np.int64, 3)[:, None] > 0
    now, more, joined = advances(lengths, (s - i)[None] + extra)
    rest = stage + 1 - at[-1]
    nothing = jnp.sum(where(i < s - 1, now, 0)) + over(rest * (rest - 1), 2)
    # Running sums, not an s x s mask: there may be thousands of snapshots.
    before = _right(lax.cumsum(now) - now)  # the sum of now[: i - 1]
    after = jnp.sum(more) - lax.cumsum(more)  # the sum of more[i + 1 :]
    costs = where(i == 0, FOREVER, before + joined + after)
    least = jnp.min(costs)
    chosen = jnp.max(where(costs == least, i, -1))
    return where(least < nothing, chosen, INT(-1))


def advances(stages: Any, snapshots: Any) -> Any:
    """A(L, s) for numbers or arrays: the optimal advances of L stages with s snapshots.

    t*L - C(s+t, t-1) with t the least such that beta(s, t) >= L; L(L-1)/2 for s = 1.
    """
    single = snapshots <= 1
    q = at_least(snapshots, 2)

    def more(c: tuple[Any, Any]) -> tuple[Any, Any]:
        t, reach = c
        short = reach < stages
        t = where(short & ~single, t + 1, t)
        return t, where(short & ~single, over(reach * (q + t), at_least(t, 1)), reach)

    def short(c: tuple[Any, Any]) -> Any:
        return jnp.any((c[1] < stages) & ~single)

    zeros = jnp.zeros_like(stages)
    t, reach = lax.while_loop(short, more, (zeros, zeros + 1))
    several = t * stages - over(reach * t, q + 1)
    return where(single, over(stages * (stages - 1), 2), where(t > 0, several, 0))

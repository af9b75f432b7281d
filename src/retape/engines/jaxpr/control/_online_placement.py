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

from retape.engines.jaxpr.control._reach_table import sweeps_at_once
from retape.engines.jaxpr.control._splits import FOREVER, INT, over, sweeps
from retape.engines.jaxpr.jaxprs._row_ops import row
from retape.engines.jaxpr.jaxprs._scalar_ops import at_least, where
from retape.schedule import departures


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


def initial_placement(snapshots: int) -> Placement:
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


def place_snapshot(
    state: Placement, stage: Any, asked: Any = True, at_once: bool = False
) -> Placement:
    """Decide about the capsule before `stage`, which is not the last.

    Args:
        state: The controller's state.
        stage: The stage.
        asked: If it is false, nothing changes.
        at_once: Whether no loop may decide, as on an accelerator.
    """
    snapshots = state.at.shape[0] - 1
    # `LeastCost`: i = p - Q, and phase k = s never comes to an end.
    s = INT(snapshots)
    i = stage - state.base
    settled = state.phase == s
    pause = ~settled & (i == s - state.phase) & asked
    cheapest = cheapest_eviction(state.at[:-1], stage, at_once)
    evicted = where(settled, cheapest, s - 1 - i)
    for at, other in departures(snapshots).items():
        evicted = where(stage == at, other, evicted)
    first = state.phase == 0
    # Nothing is evicted in the first phase: the new snapshot goes behind the others.
    out = where(first, state.held.astype(INT), evicted)
    keep = ~pause & (out >= 0) & asked
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
    gap, at_last = (index >= j) & (index < last), index == last

    def close(array: Any, new: Any) -> Any:
        after = where(gap, _left(array), array)
        return where(at_last, new, after)

    freed = where(index == held, row(state.slot, j), state.slot)
    slot = where(index > last, freed, close(state.slot, row(state.slot, held)))
    return state._replace(at=close(state.at, stage), slot=slot)


def _left(array: Any) -> Any:
    """Every entry one place to the left; the last one stays."""
    return lax.concatenate([array[1:], array[-1:]], 0)


def _right(array: Any) -> Any:
    """Every entry one place to the right, behind a zero."""
    return lax.pad(array[:-1], jnp.zeros((), array.dtype), [(1, 0, 0)])


def cheapest_eviction(at: Any, stage: Any, at_once: bool = False) -> Any:
    """Which of s snapshots to evict for one at `stage`; -1 if none.

    Costs suppose that the run ends after the following stage.
    """
    if at.shape[0] == 1:
        return INT(-1)
    # A loop over numbers compiles in a quarter of the time. An accelerator would launch
    # a kernel for each of them.
    one_by_one = not at_once and jax.default_backend() == "cpu"
    return _one_by_one(at, stage) if one_by_one else _all_at_once(at, stage, at_once)


class _EvictionScan(NamedTuple):
    """The costs of evicting each snapshot, gone through from the oldest on."""

    turn: Any
    """Three for each snapshot i: its gap and the one before joined, its gap with one
    slot more, and as it is."""
    two: Any
    """The sum of now[: i - 1]: what the gaps cost that evicting i leaves alone."""
    one: Any
    """The sum of now[:i]"""
    this: Any
    """The cost of all gaps up to i if i is evicted."""
    least: Any
    """That of evicting the best of those up to i, `chosen`."""
    chosen: Any


def _one_by_one(at: Any, stage: Any) -> Any:
    s = at.shape[0]
    ends = lax.concatenate([at[1:], lax.broadcast(stage, (1,))], 0)

    def turn(found: _EvictionScan) -> _EvictionScan:
        i, question = lax.div(found.turn, INT(3)), lax.rem(found.turn, INT(3))
        joined, more, now = (question == q for q in range(3))
        # An index below zero is taken for zero, and nothing is joined there.
        begin = row(at, i - lax.convert_element_type(joined, INT))
        slots = INT(s + 1) - i - lax.convert_element_type(now, INT)
        a = _advances_of_several(row(ends, i) - begin, slots)
        this = where(joined, found.two + a, found.this)
        least = where(more, found.least + a, found.least)
        better = more & (this <= least)
        return _EvictionScan(
            found.turn + 1,
            where(now, found.one, found.two),
            where(now, found.one + a, found.one),
            this,
            where(better, this, least),
            where(better, i, found.chosen),
        )

    zero = jnp.zeros((), INT)
    # To evict the oldest, the start of the run, costs more than anything.
    first = _EvictionScan(zero, FOREVER, zero, zero, FOREVER, INT(-1))
    # The newest gap as it is ends in the stage that follows, with no slot left.
    last = lax.while_loop(lambda found: found.turn < 3 * s - 1, turn, first)
    rest = stage + 1 - row(at, INT(s - 1))
    nothing = last.one + over(rest * (rest - 1), 2)
    return where(last.least < nothing, last.chosen, INT(-1))


def _all_at_once(at: Any, stage: Any, at_once: bool = False) -> Any:
    s = at.shape[0]
    i = lax.iota(np.int64, s)
    gaps = where(i == s - 1, stage, _left(at)) - at
    # One row for each question: as it is, with one slot more, and joined to the left.
    lengths = lax.concatenate([gaps[None], gaps[None], (gaps + _right(gaps))[None]], 0)
    extra = lax.iota(np.int64, 3)[:, None] > 0
    now, more, joined = advances(lengths, (s - i)[None] + extra, at_once)
    rest = stage + 1 - at[-1]
    nothing = jnp.sum(where(i < s - 1, now, 0)) + over(rest * (rest - 1), 2)
    # Running sums, not an s x s mask: there may be thousands of snapshots.
    before = _right(lax.cumsum(now) - now)  # the sum of now[: i - 1]
    after = jnp.sum(more) - lax.cumsum(more)  # the sum of more[i + 1 :]
    costs = where(i == 0, FOREVER, before + joined + after)
    least = jnp.min(costs)
    chosen = jnp.max(where(costs == least, i, -1))
    return where(least < nothing, chosen, INT(-1))


def advances(stages: Any, snapshots: Any, at_once: bool = False) -> Any:
    """A(L, s) for arrays: the optimal advances of L stages with s snapshots.

    t*L - C(s+t, t-1) with t the least such that beta(s, t) >= L; L(L-1)/2 for s = 1.
    """
    single = snapshots <= 1
    q = at_least(snapshots, 2)
    if at_once:
        t, reach = sweeps_at_once(stages, jnp.broadcast_to(q, stages.shape))
        alone = over(stages * (stages - 1), 2)
        return where(single, alone, _reversal_cost(stages, q, t, reach))

    def more(c: tuple[Any, Any]) -> tuple[Any, Any]:
        t, reach = c
        short = reach < stages
        t = where(short & ~single, t + 1, t)
        return t, where(short & ~single, over(reach * (q + t), at_least(t, 1)), reach)

    def short(c: tuple[Any, Any]) -> Any:
        return jnp.any((c[1] < stages) & ~single)

    zeros = jnp.zeros_like(stages)
    t, reach = lax.while_loop(short, more, (zeros, zeros + 1))
    return where(
        single, over(stages * (stages - 1), 2), _reversal_cost(stages, q, t, reach)
    )


def _advances_of_several(stages: Any, snapshots: Any) -> Any:
    """The same of numbers, with two snapshots and more."""
    return _reversal_cost(stages, snapshots, *sweeps(stages, snapshots))


def _reversal_cost(stages: Any, snapshots: Any, t: Any, reach: Any) -> Any:
    # Without a sweep there is at most one stage, which is not advanced: 0 - 0.
    return t * stages - over(reach * t, snapshots + 1)

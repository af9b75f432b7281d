"""Placing snapshots while the end of the run is unknown, as traced arithmetic.

The rules and the symbols are those of `LeastCost` of the schedules (`which_leaves`
there is called here); the cheapest eviction, for which integers keep what they computed
before, is found anew each time. A test holds both to the same decisions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from retape.engines.jaxpr.control._numbers import TRACED, loopless, over
from retape.engines.jaxpr.control._settings import FOREVER, INT
from retape.engines.jaxpr.jaxprs._row_ops import row
from retape.engines.jaxpr.jaxprs._scalar_ops import at_least, where
from retape.schedule._binomial import advances
from retape.schedule._placing._online_memory import FORGOTTEN, PAUSE, which_leaves


class Placement(NamedTuple):
    """The controller's state."""

    at: Any
    """int64[s + 1]: by slot, the stage at which what it holds stands."""
    slot: Any
    """int32[s + 1]: slots of the snapshots, oldest first; from `held` on, free ones.

    In the first of the free ones the capsule waits that is asked about.
    """
    held: Any
    """int64: how many there are."""
    phase: Any
    base: Any

    @property
    def snapshots(self) -> int:
        """How many there may be."""
        return self.at.shape[0] - 1


def leaving(state: Placement, stage: Any, at_once: bool = False) -> Any:
    """Which of the snapshots leaves for the capsule before `stage`: see `which_leaves`.

    Args:
        state: The controller's state.
        stage: The stage, which is not the last.
        at_once: Whether no loop may decide, as on an accelerator.
    """
    settled = state.phase == state.snapshots
    cheapest = cheapest_eviction(state.at, state.slot, stage, settled, at_once)
    return which_leaves(state, stage, cheapest, TRACED)


def after_placing(state: Placement, stage: Any, leaves: Any) -> Placement:
    """The state after that was decided."""
    keep, pause, held = leaves >= 0, leaves == PAUSE, state.held
    # The new one stands behind those held. As the last of them it comes to where the
    # last one was, and the slot of the one that goes to where the new one waited; with
    # nothing to go all stays where it is.
    j = where(keep, leaves, held)
    return Placement(
        at=state.at,
        slot=_turned_left(state.slot, j, held),
        held=state.held + (keep & (state.phase == 0)),
        phase=state.phase + pause,
        base=where(pause, stage + 1, state.base),
    )


def _turned_left(array: Any, j: Any, last: Any) -> Any:
    """Entries j to `last` one place to the left; the first of them goes behind them."""
    index = lax.iota(np.int64, array.shape[0])
    turned = where(index == last, row(array, j), _left(array))
    return where((index >= j) & (index <= last), turned, array)


def _left(array: Any) -> Any:
    """Every entry one place to the left; the last one stays."""
    return lax.concatenate([array[1:], array[-1:]], 0)


def _right(array: Any) -> Any:
    """Every entry one place to the right, behind a zero."""
    return lax.pad(array[:-1], jnp.zeros((), array.dtype), [(1, 0, 0)])


def cheapest_eviction(
    at: Any, slot: Any, stage: Any, asked: Any = True, at_once: bool = False
) -> Any:
    """Which of s snapshots to evict for one at `stage`; -1 if none.

    Costs suppose that the run ends after the following stage.

    Args:
        at: The stages at which capsules stand, by slot.
        slot: The slots of all snapshots, oldest first, and that of the new one.
        stage: The stage.
        asked: If it is false, what comes out means nothing.
        at_once: Whether no loop may decide, as on an accelerator.
    """
    if at.shape[0] == 2:
        return INT(FORGOTTEN)
    if at_once:
        return _all_at_once(jnp.take(at, slot, mode="clip")[:-1], stage)
    # A loop over numbers compiles in a quarter of the time. An accelerator would launch
    # a kernel for each of them.
    return _one_by_one(at, slot, stage, asked)


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


def _one_by_one(at: Any, slot: Any, stage: Any, asked: Any) -> Any:
    s = at.shape[0] - 1
    turns = where(jnp.asarray(asked), INT(3 * s - 1), 0)

    def stage_of(age: Any) -> Any:
        return row(at, row(slot, age))

    def turn(found: _EvictionScan) -> _EvictionScan:
        i, question = lax.div(found.turn, INT(3)), lax.rem(found.turn, INT(3))
        joined, more, now = (question == q for q in range(3))
        # An index below zero is taken for zero, and nothing is joined there.
        begin = stage_of(i - lax.convert_element_type(joined, INT))
        slots = INT(s + 1) - i - lax.convert_element_type(now, INT)
        a = advances(stage_of(i + 1) - begin, slots, TRACED)
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
    first = _EvictionScan(zero, FOREVER, zero, zero, FOREVER, INT(FORGOTTEN))
    # The newest gap as it is ends in the stage that follows, with no slot left.
    last = lax.while_loop(lambda found: found.turn < turns, turn, first)
    rest = stage + 1 - stage_of(INT(s - 1))
    nothing = last.one + over(rest * (rest - 1), 2)
    return where(last.least < nothing, last.chosen, INT(FORGOTTEN))


def _all_at_once(at: Any, stage: Any) -> Any:
    s = at.shape[0]
    i = lax.iota(np.int64, s)
    gaps = where(i == s - 1, stage, _left(at)) - at
    # One row for each question: as it is, with one slot more, and joined to the left.
    lengths = lax.concatenate([gaps[None], gaps[None], (gaps + _right(gaps))[None]], 0)
    extra = lax.iota(np.int64, 3)[:, None] > 0
    now, more, joined = _advances_of_arrays(lengths, (s - i)[None] + extra, s + 1)
    rest = stage + 1 - at[-1]
    nothing = jnp.sum(where(i < s - 1, now, 0)) + over(rest * (rest - 1), 2)
    # Running sums, not an s x s mask: there may be thousands of snapshots.
    before = _right(lax.cumsum(now) - now)  # the sum of now[: i - 1]
    after = jnp.sum(more) - lax.cumsum(more)  # the sum of more[i + 1 :]
    costs = where(i == 0, FOREVER, before + joined + after)
    least = jnp.min(costs)
    chosen = jnp.max(where(costs == least, i, -1))
    return where(least < nothing, chosen, INT(FORGOTTEN))


def _advances_of_arrays(stages: Any, snapshots: Any, most: int) -> Any:
    """`advances`; L(L-1)/2 for s = 1, of which the table has no more than a few."""
    several = jnp.broadcast_to(at_least(snapshots, 2), stages.shape)
    cost = advances(stages, several, loopless(most))
    return where(snapshots <= 1, over(stages * (stages - 1), 2), cost)

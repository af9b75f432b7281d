"""Choose the next action of a sweep from the controller's integers alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jax import lax

from retape.engines.jaxpr.control._settings import FOREVER, INT, Settings
from retape.engines.jaxpr.jaxprs._row_ops import row
from retape.engines.jaxpr.jaxprs._scalar_ops import at_least, where
from retape.schedule._binomial import Numbers
from retape.schedule._split import RULES, Split

READ = ("here", "newest", "end", "sweeps")
"""The parts of the state by which is cut, the last for a split that asks for it."""


def cut(
    state: Mapping[Any, Any],
    asked: Any,
    snapshots: int,
    split: Split,
    numbers: Numbers,
) -> Any:
    """How many stages ahead the next snapshot is stored; 0 if a stage is reversed.

    A single number, which a sweep hands on from where it was computed (`number_if`):
    of several results XLA would compute each anew wherever it is used.

    Args:
        state: The values of `READ`.
        asked: If it is false, what comes out means nothing.
        snapshots: Slots, that of the start state included.
        split: The rule.
        numbers: The operations.
    """
    # One level of the recursion: `here` is the start of the interval, `end` its end.
    # In a batch it is also computed where it is not asked for. There the end may be
    # unknown, and the search for the sweeps of so long an interval would not end.
    length = where(asked, state["end"] - state["here"], 1)
    kind = length.dtype.type
    free = kind(snapshots) - state["newest"]
    left = _sweeps_left(state) if split == "treeverse" else None
    ahead = RULES[split](at_least(length, 2), at_least(free, 2), left, numbers)
    # A(L, 1) = L (L - 1) / 2: with one slot left every stage is reached from the start,
    # and a cut behind the last stage but one stores what is taped at once.
    stage = (length <= 1) | (free <= 1) | (ahead >= length - 1)
    return where(stage, kind(0), ahead)


def decision(
    state: Mapping[Any, Any], ahead: Any, settings: Settings, *, unknown: bool
) -> list[Any]:
    """The stage to advance to, whether to store there, and whether to reverse it.

    For a split that spends sweeps, also how many each snapshot has left.

    Args:
        state: That of the sweep.
        ahead: What `cut` said; if the end is unknown, 0.
        settings: What the plan fixed.
        unknown: Whether only a run can tell the number of steps.
    """
    here, store = state["here"], ahead > 0
    stage, divided = ~store, state["end"] - here > 1
    goal = where(store, here + ahead, state["end"] - 1)
    if unknown:
        back = state["back"]
        # Nothing is cut before the end is known.
        counting = settings.forward == "count"
        onward = FOREVER // INT(settings.stage) if counting else here + 1
        goal, stage, divided = where(back, goal, onward), back & stage, back & divided
    if settings.split != "treeverse":
        return [goal, store, stage]
    swept = _spent(state["sweeps"], state["newest"], _sweeps_left(state))
    return [goal, store, stage, where(divided, swept, state["sweeps"])]


def _sweeps_left(state: Mapping[Any, Any]) -> Any:
    """The sweeps that the newest snapshot has left."""
    return row(state["sweeps"], at_least(state["newest"], 0))


def _spent(sweeps: Any, newest: Any, left: Any) -> Any:
    """Repetitions after a cut: one fewer to its left, as many to its right."""
    age = lax.iota(np.int32, sweeps.shape[0])
    fewer = where(age == newest, sweeps - 1, sweeps)
    return where(age == newest + 1, left, fewer)

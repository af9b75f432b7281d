"""Choose the next action of a sweep from the controller's integers alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jax import lax

from retape.engines.jaxpr.control._settings import BACK, COUNT, Settings
from retape.engines.jaxpr.control._splits import (
    FOREVER,
    INT,
    SPLITS,
    Sweeps,
    binomial_split,
    sweeps,
)
from retape.engines.jaxpr.jaxprs._row_ops import row
from retape.engines.jaxpr.jaxprs._scalar_ops import at_least, where

READ = ("here", "newest", "end", "mode", "sweeps")
"""The parts of the state that decide."""


def decision(
    state: Mapping[Any, Any],
    settings: Settings,
    count_sweeps: Sweeps = sweeps,
    *,
    unknown: bool,
) -> list[Any]:
    """The stage to advance to, whether to store there, and whether to reverse it.

    For a split that spends sweeps, also how many each snapshot has left.

    Args:
        state: The values of `READ`.
        settings: What the plan fixed.
        count_sweeps: How the least number of sweeps is found.
        unknown: Whether only a run can tell the number of steps.
    """
    # One level of the recursion: `here` is the start of the interval, `end` its end.
    here, newest = state["here"], state["newest"]
    length = state["end"] - here
    if unknown:
        # Nothing is cut before the end is known.
        length = where(state["mode"] == BACK, length, 1)
    free = INT(settings.snapshots) - newest
    left = row(state["sweeps"], at_least(newest, 0))
    given = at_least(length, 2), at_least(free, 2), left
    if settings.split == "binomial":
        split = binomial_split(*given, count_sweeps)
    else:
        split = SPLITS[settings.split](*given)
    # A(L, 1) = L (L - 1) / 2: with one slot left every stage is reached from the start,
    # and a cut behind the last stage but one stores what is taped at once.
    stage = (length <= 1) | (free <= 1) | (split >= length - 1)
    goal = where(stage, state["end"] - 1, here + split)
    store = ~stage
    if unknown:
        counting, back = state["mode"] == COUNT, state["mode"] == BACK
        goal = where(back, goal, here + 1)
        goal = where(counting, FOREVER // INT(settings.stage), goal)
        store, stage = back & store, back & stage
    if settings.split != "treeverse":
        return [goal, store, stage]
    swept = _spent(state["sweeps"], newest, left)
    return [goal, store, stage, where(length > 1, swept, state["sweeps"])]


def _spent(sweeps: Any, newest: Any, left: Any) -> Any:
    """Repetitions after a cut: one fewer to its left, as many to its right."""
    age = lax.iota(np.int32, sweeps.shape[0])
    fewer = where(age == newest, sweeps - 1, sweeps)
    return where(age == newest + 1, left, fewer)

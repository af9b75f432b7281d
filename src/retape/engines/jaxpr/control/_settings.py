"""The sizes that a plan fixed, and how wide the integers are by which a sweep counts.

A TPU has no 64-bit integers: each operation on one is several on its halves, a division
some hundred, and a GPU divides them by a routine, too. So what decides where to cut has
32 bits where the length is known and everything that is computed from it fits; that is
so up to a million stages with 700 snapshots. And steps are counted down in 32 bits
unless more of them are known to be made in a go: where only a run can tell the length,
no more than `LONGEST_GO` are asked for at once.

Counts of what was done (`SweepCounts`) have 64 bits always. They change once a turn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from retape.schedule._split import Split

INT = np.int64
FOREVER = np.int64(2**62)
"""More steps than can be run."""

LONGEST_GO = 2**30
"""Steps that are asked for at once, at most, where the length is not known."""

_LEAST_TOO_LARGE = 2**31

Integer = type[np.int32] | type[np.int64]


def stage_type(length: int | None, stage: int, snapshots: int, sweeps: int) -> Integer:
    """The type of positions in a sweep, and of all that is computed from them.

    The largest product of a split (`schedule/_split`) is L (s + t), with t sweeps for
    L stages: at most as many as with two snapshots, for which beta(2, t) >= L, so that
    t <= sqrt(2 L) + 1.

    Args:
        length: Steps, if they are known.
        stage: Steps of a stage.
        snapshots: Slots.
        sweeps: Those of a split that spends them; else 0.

    Examples:
        >>> stage_type(10**6, 10, 20, 0).__name__, stage_type(None, 10, 20, 0).__name__
        ('int32', 'int64')
    """
    if length is None:
        return np.int64
    stages = -(-length // stage)
    most = max(math.isqrt(2 * stages) + 2, sweeps)
    largest = max(length + stage, (stages + 1) * (snapshots + most + 2))
    return np.int32 if largest < _LEAST_TOO_LARGE else np.int64


def step_type(length: int | None) -> Integer:
    """The type of the number of steps that are still to be made in one go.

    Examples:
        >>> step_type(2**40).__name__, step_type(None).__name__
        ('int64', 'int32')
    """
    wide = length is not None and length >= _LEAST_TOO_LARGE - 1
    return np.int64 if wide else np.int32


@dataclass(frozen=True, slots=True)
class Settings:
    """The sizes that a plan fixed: they are shapes, so all are known at trace time."""

    snapshots: int
    """Slots, that of the start state included."""
    stage: int
    """Steps in a stage."""
    split: Split = "binomial"
    forward: Literal["count", "online"] = "online"
    """How an unknown number of steps is dealt with."""
    sweeps: int | None = None
    """Most times that a step is advanced; only the treeverse split asks for it."""
    thrift: bool = False
    """Whether stages of one step hold less at once, for some arithmetic done twice."""
    plain: bool = False
    """Whether the ordinary derivative is taken, which stores what it needs."""
    on_host: bool = False
    """Whether snapshots wait in the host's memory."""
    device: bool = False
    """Whether the sweep is for an accelerator, whose host is not to wait."""

    @property
    def direct(self) -> bool:
        """Tell whether a stage is one step, which needs no tape."""
        return self.stage == 1

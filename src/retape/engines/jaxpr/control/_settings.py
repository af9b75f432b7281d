"""Settings of a sweep: snapshots, stage length, mode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from retape.schedule._split import Split

COUNT, ONLINE, BACK = np.int32(0), np.int32(1), np.int32(2)


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

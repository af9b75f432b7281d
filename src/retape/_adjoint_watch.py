"""Cotangents looked at while a run of `retape.adjoint` goes back, for little time.

The largest number of each is found, two passes over memory. Where that would have to
wait for a device only 32 of a run are looked at, and the result says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from retape.driver._health import LOOKS
from retape.storage._trees._magnitude import is_in_reach, largest


@dataclass(slots=True)
class CotangentWatch:
    """The cotangents of a run, and the largest before every `per`-th step.

    Attributes:
        growth: How many times larger than the first they may become.
        steps: Of the run.
        per: Steps from one norm to the next.
        each: Whether the cotangents between them are looked at, too.
        norms: What was seen, from the last step to the first.
        first: The largest cotangent of the last state, or the first that is not 0.
        ill: The step at which not all was well, for the first time.
    """

    growth: float
    steps: int = -1
    per: int = 1
    each: bool = True
    norms: list[float] = field(default_factory=list[float])
    first: float = 0.0
    ill: int | None = None

    def __call__(self, step: int, cotangent: Any) -> None:
        """Look at the cotangent of the state before a step."""
        if self.steps < 0:
            self.steps, self.per = step, max(1, -(-step // LOOKS))
            self.each = is_in_reach(cotangent)
        elif step % self.per and (self.ill is not None or not self.each):
            return
        norm = largest(cotangent)
        if step % self.per == 0 and (step < self.steps or not self.steps):
            self.norms.append(norm)
        if self.ill is None and self.is_ill(norm):
            self.ill = step

    def is_ill(self, norm: float) -> bool:
        """Tell whether a cotangent is not finite, or larger than it may be."""
        self.first = self.first or norm
        return not isfinite(norm) or norm > self.growth * self.first

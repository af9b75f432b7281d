"""Cotangents looked at while a run of `retape.adjoint` goes back, for little time.

The largest of 32 of them is measured. Of all others it is asked whether they are within
the bound. A question to NumPy takes as long for ten numbers as for a thousand, so small
cotangents are copied into rows, and 64 steps are asked about at once:

    step 99    98    97  ...  36             35
    row   0     1     2  ...  63 -> within?   0   ...      if not: each row by itself

Large ones are asked about where they are, a pass over memory each. Where an answer
would have to wait for a device only the 32 are looked at, and the result says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any

from retape.driver._health import LOOKS
from retape.storage import tree_nbytes
from retape.storage._trees._bounded import is_in_reach, is_within
from retape.storage._trees._magnitude import largest
from retape.storage._trees._rows import Rows

_SMALL = 16_384
"""Bytes of a cotangent that is copied: up to here that is no dearer than to ask."""


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
    _put: Callable[[int, Any], bool] | None = None
    _rows: Rows | None = None
    _count: int = 0
    _last: int = 0

    def __call__(self, step: int, cotangent: Any) -> None:
        """Look at the cotangent of the state before a step."""
        put, count = self._put, self._count
        if put is not None and step % self.per and put(count, cotangent):
            self._count = count = count + 1
            self._last = step
            if count == Rows.COUNT:
                self.check()
            return
        self._look(step, cotangent)

    def _look(self, step: int, cotangent: Any) -> None:
        """Look at a cotangent that is not copied."""
        if self.steps < 0:
            self._begin(step, cotangent)
        elif step % self.per:
            if self.ill is None and self.each:
                self.check()
                if not self.first or not is_within(cotangent, self._bound):
                    self._judge(step, largest(cotangent))
            return
        self.check()
        norm = largest(cotangent)
        if step < self.steps or not self.steps:
            self.norms.append(norm)
        self._judge(step, norm)

    def check(self) -> None:
        """Look at the cotangents that were copied, and forget them."""
        count, rows = self._count, self._rows
        if rows is None or not count:
            return
        if self.ill is None and not (self.first and rows.within(count, self._bound)):
            # Between two looks that are not copied steps follow one another.
            for row in range(count):
                self._judge(self._last + count - 1 - row, rows.largest(row))
        self._count = 0

    def is_ill(self, norm: float) -> bool:
        """Tell whether a cotangent is not finite, or larger than it may be."""
        self.first = self.first or norm
        return not isfinite(norm) or norm > self._bound

    def _begin(self, step: int, cotangent: Any) -> None:
        self.steps, self.per = step, max(1, -(-step // LOOKS))
        self.each = is_in_reach(cotangent)
        if self.each and tree_nbytes(cotangent) <= _SMALL:
            self._rows = Rows()
            self._put = self._rows.putter(cotangent)

    def _judge(self, step: int, norm: float) -> None:
        if self.is_ill(norm) and self.ill is None:
            self.ill, self._put = step, None

    @property
    def _bound(self) -> float:
        return self.growth * self.first if self.first else inf

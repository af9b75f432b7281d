"""Reversal of a gap: the next stage to recompute, and new snapshots on the way.

A gap lies between a snapshot and the position that the backward has reached. It is cut
into *units* at narrow positions. A stage is a run of alpha units whose saved values fit
in the free memory together; with the snapshots that fit beside it, the binomial split
of Algorithm 799 (Griewank and Walther 2000) says where to plant the next one. Free
memory is read off at each stage, so that what earlier stages gave back is used by the
later ones.
"""

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from retape.engines.eager._limits import Limits
from retape.engines.eager.analysis._liveness import Span, cut_into_units
from retape.engines.eager.replay._replay import needed_steps
from retape.schedule._binomial import optimal_advances
from retape.schedule._split import binomial_split

if TYPE_CHECKING:
    from retape.engines.eager.trace._run import Run

_advances = lru_cache(maxsize=65536)(optimal_advances)


class Gap:
    """The steps between a snapshot and the position asked for."""

    def __init__(
        self,
        run: "Run",
        start: int,
        position: int,
        limits: Limits,
    ) -> None:
        self._run = run
        self._limits = limits
        self.start = start
        self.end = position
        storages = run.trace.held.storages
        saved = [
            (slot, step)
            for slot, step in run.living_with_steps(start, position)
            if slot not in storages
        ]
        steps = needed_steps(run.trace, dict(saved))
        self.span = Span(run.trace, start, position, steps, saved)

    def covers(self, start: int, position: int) -> bool:
        """Tell whether this analysis serves a request."""
        return self.start <= start and position <= self.end

    def free(self, position: int) -> float:
        """Bytes that recomputed values may take now."""
        trace = self._run.trace
        return trace.memory - trace.counter.live - self.span.margin(position)

    def admits(self, again: int, left: int, position: int) -> bool:
        """Tell whether there is room for a replay now, and for going back after it.

        Args:
            again: The most bytes that the replay holds at once.
            left: Those that it leaves for autograd.
            position: Where the backward is.
        """
        trace = self._run.trace
        waiting = max(
            again + self.span.waiting_at(position),
            left + self.span.reverse_up_to(position),
        )
        return waiting <= trace.memory - trace.counter.live

    def next_action(self, start: int, position: int) -> tuple[bool, int]:
        """The next action for values saved up to `position`, from a snapshot.

        Returns:
            `(True, cut)` to plant a snapshot at `cut`, or `(False, first)` to recompute
            what was saved from `first` on.
        """
        if self._limits.snapshots is None and self.fits(start, position):
            return False, start
        units = [start, *(cut for cut in self._units if start < cut <= position)]
        alpha, slots = self._stage_length(units, position)
        stages = -(-len(units) // alpha)
        if stages == 1:
            return False, start
        if slots == 1:
            return False, units[(stages - 1) * alpha]
        return True, units[binomial_split(stages, slots) * alpha]

    def crossing(self, start: int, cut: int) -> set[int]:
        """Slots that the rest of the gap needs of the steps between two positions."""
        return self.span.crossing(start, cut)

    def smallest_stage(self, position: int) -> int:
        """Bytes of the last unit up to a position."""
        return self.span.saved_between(self.last_cut(position), position)

    def last_cut(self, position: int) -> int:
        """The start of the last unit up to a position."""
        before = [cut for cut in self._units if cut <= position]
        return before[-1] if before else self.start

    @cached_property
    def _units(self) -> list[int]:
        """The cut points of a gap; a gap that is one stage never asks."""
        if self._limits.snapshots is not None:
            return cut_into_units(self.span, 0, self._limits.stage)
        free = self.free(self.end)
        size = max(1.0, free / 8)
        units = cut_into_units(self.span, size, len(self.span.steps) + 1)
        while size > 1 and self.span.widest_unit(units) > free:
            size = max(1.0, size / 4)
            units = cut_into_units(self.span, size, len(self.span.steps) + 1)
        return units

    def shorter(self, first: int, position: int) -> int:
        """The start of a stage of about half as many units; the shortest has a step."""
        cuts = [cut for cut in self._units if first < cut < position]
        return cuts[len(cuts) // 2] if cuts else position

    def fits(self, first: int, position: int) -> bool:
        """Tell whether what was saved between two steps can be recomputed at once."""
        return self.span.saved_between(first, position) <= self.free(position)

    def _stage_length(self, units: list[int], position: int) -> tuple[int, int]:
        """Units in a stage, and snapshots to use, the one at the start included."""
        if self._limits.snapshots is not None:
            return 1, max(
                1, self._limits.snapshots - len(self._run.trace.snapshots) + 1
            )
        count = len(units)
        width = max(1.0, self.span.mean_width(units[1:]))
        room = self.free(position)
        best, chosen = float("inf"), (1, 1)
        alpha = 1
        while alpha <= count:
            tape = self.span.saved_between(units[-alpha], position)
            slots = 1 + int(max(0.0, room - tape) / width)
            if tape > room and alpha > 1:
                break
            stages = -(-count // alpha)
            cost = alpha * _advances(stages, min(slots, stages))
            if cost <= best:
                best, chosen = cost, (alpha, min(slots, stages))
            alpha = alpha + max(1, alpha // 4)
        return chosen

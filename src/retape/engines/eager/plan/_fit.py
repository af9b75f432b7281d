"""The best plan for what was measured, in the room that runs have shown there is.

A record shows what a program reads again. It does not show what it holds beyond its
last use, as local variables. A run that leaves its plan for that reason tells how much
it was, and the next plan has so much less room: everywhere, if it was held to the end,
else only where the program itself runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from retape.engines.eager._limits import (
    BACKWARD_NUMBERS,
    SMALL_BUDGET,
    room_for_tensors,
)
from retape.engines.eager.analysis._measured import Measured
from retape.engines.eager.plan._dynamic_programme import LARGEST, Optimum
from retape.engines.eager.plan._in_store import units_in_store
from retape.engines.eager.plan._planned_forward import UnitSchedule
from retape.engines.eager.trace._schedule import Descent


@dataclass(slots=True)
class Fit:
    """The memory that plans for one program have to leave free.

    Attributes:
        short: Bytes held beyond what was measured, all the time.
        overhang: Bytes held beyond their last use while the program runs.
    """

    short: int = 0
    overhang: int = 0

    def learn(self, plan: UnitSchedule) -> None:
        """A plan was left because there was less room."""
        if plan.overhang:
            more = max(plan.excess, plan.overhang - self.overhang)
            self.overhang += max(more, self.overhang // 4)
        else:
            self.short += max(plan.excess, self.short)

    def best(
        self,
        measured: Measured,
        memory: int,
        largest: int = LARGEST,
        price: int = 0,
    ) -> Optimum:
        """The best way to reverse what was measured in a budget.

        Args:
            measured: A run.
            memory: Bytes.
            largest: Entries to look at.
            price: Of a byte on its way into a store or back; 0 without a store.
        """
        beside = room_for_tensors(memory, measured.record_in(memory))
        room = beside - measured.kept_bytes - BACKWARD_NUMBERS - self.short
        # The table is made where tensors will be, beside the record.
        table = SMALL_BUDGET if memory <= SMALL_BUDGET else beside
        room = max(0, room)
        if price:
            units, widths, *copies = units_in_store(measured, price)
        else:
            units, widths, copies = measured.units, measured.widths(), ()
        return Optimum(units, widths, room, largest, self.overhang, table, *copies)

    def plan(self, descents: Sequence[Descent], measured: Measured) -> UnitSchedule:
        """A plan for one run; a `UnitSchedule` notes what its run does."""
        outside = measured.outside_bytes + self.short
        return UnitSchedule(descents, len(measured.units), measured, outside)

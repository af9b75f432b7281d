"""The last block: run once in all, when it is swept back.

Every sweep back begins where the run ends. Then the registers stand before the last
block, and nobody needs its results but whoever called the program. So it is neither
advanced nor taped: on the way forward it is only passed, and on the way back its whole
derivative gives the program's outputs along with the cotangents:

    forth:  tape a block, ..., tape a block, pass the last
    back:   outputs and cotangents of the last, pop and pull, ..., pop and pull

A loss of many saved states is such a block: what it would tape is as large as they are.
"""

from __future__ import annotations

from typing import Any

from retape.engines.jaxpr.codegen._step_vjp import whole_vjp
from retape.engines.jaxpr.ir._ir import Label
from retape.engines.jaxpr.nest._resumable_nest import State
from retape.engines.jaxpr.sweep._pin import pinned_state
from retape.engines.jaxpr.sweep._reverse import Reverse
from retape.engines.jaxpr.sweep._tapeless import pulled, pulled_changes


class ReverseLast(Reverse):
    """Sweeps the taped steps back, and runs the last block when it comes to it."""

    def changes(self, label: Label) -> set[Any]:
        taped = self.compiled.taped[label]
        if not taped.ending:
            return super().changes(label)
        return {*pulled_changes(self.compiled, taped), "taped"}

    def step(self, label: Label, state: State) -> State:
        taped = self.compiled.taped[label]
        if not taped.ending:
            return super().step(label, state)
        state = state | {"taped": state["taped"] - 1}
        state = pinned_state(self.compiled, taped.code, state, set(), by="taped")
        return pulled(
            self.compiled, taped, whole_vjp(taped), self.operands, state, "taped"
        )

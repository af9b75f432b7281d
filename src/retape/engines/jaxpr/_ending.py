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

from jax.extend import core

from ._backward import Reverse
from ._direct import derivative, pulled, pulled_changes
from ._forward import pinned
from ._ir import Label
from ._nest import State
from ._remembered import remembered
from ._tape import TapedCode


class Back(Reverse):
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
        state = pinned(self.compiled, taped.code, state, set(), by="taped")
        return pulled(self.compiled, taped, whole(taped), self.operands, state, "taped")


@remembered(64)
def whole(taped: TapedCode) -> core.ClosedJaxpr:
    """The last block's derivative, with its results; see `_direct.derivative`."""
    return derivative(taped)

"""The last block: run once in all, when it is swept back.

Every sweep back begins where the run ends. Then the registers stand before the last
block, and nobody needs its results but whoever called the program. So it is neither
advanced nor taped: on the way forward it is only passed, and on the way back its whole
derivative gives the program's outputs along with the cotangents:

    forth:  tape a block, ..., tape a block, pass the last
    back:   outputs and cotangents of the last, pop and pull, ..., pop and pull

A loss of many saved states is such a block: what it would tape is as large as they are.

A program of a single block (a straight line, or one whose loops are so small that they
stay operations) is no more than that. Its sweep restores nothing, stores nothing and
advances nothing, and no count of it depends on the run, so the loop of turns and the
controller in it are left out:

    in general:  while unfinished: restore? -> advance -> store? -> reverse a stage?
    one block:   (outputs, cotangents) = (vjp of the block)(operands, cotangents)

What is computed is the same. Without a loop around it a program of this kind compiles
in a half to a quarter of the time (`benchmarks/jax/compile_time.py`), and takes
the memory of the plain derivative.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.control._settings import INT, Settings
from retape.engines.jaxpr.ir._ir import Label
from retape.engines.jaxpr.nest._resumable_nest import PLAIN, Guard, State
from retape.engines.jaxpr.sweep._pin import pinned_state
from retape.engines.jaxpr.sweep._reverse import Reverse
from retape.engines.jaxpr.sweep._state import SweepCounts, before_run, output_of
from retape.engines.jaxpr.sweep._tapeless import pulled, pulled_changes
from retape.engines.jaxpr.xla._scalar_guards import needs_guards


class ReverseLast(Reverse):
    """Sweeps the taped steps back, and runs the last block when it comes to it."""

    def changes(self, label: Label) -> set[Any]:
        taped = self.compiled.taped[label]
        if not taped.ending:
            return super().changes(label)
        return {*pulled_changes(self.compiled, taped), "taped"}

    def step(self, label: Label, state: State, guard: Guard) -> State:
        taped = self.compiled.taped[label]
        if not taped.ending:
            return super().step(label, state, guard)
        state = state | {"taped": state["taped"] - 1}
        state = pinned_state(self.compiled, taped.code, state, set(), by="taped")
        whole, operands = taped.whole, self.operands
        return pulled(self.compiled, taped, whole, operands, state, "taped", guard)


def is_single_block(compiled: Compiled, settings: Settings) -> bool:
    """Tell whether nothing needs to be steered.

    Not so where scalars are to be kept out of the loops over arrays
    (`xla/_scalar_guards`), or the block is to hold less (`Settings.thrift`): both take
    a truth that the compiler cannot know, and a loop has one.
    """
    if len(compiled.taped) > 1 or compiled.program.length != 1 or settings.thrift:
        return False
    (taped,) = compiled.taped.values()
    return taped.ending and not needs_guards(taped.whole)


def sweep_single_block(
    compiled: Compiled, operands: Sequence[Any], cotangents: Sequence[Any]
) -> list[Any]:
    """Outputs, cotangents and counts, one after the other, as a sweep hands them back.

    Args:
        compiled: The program, of one block.
        operands: Inputs, then constants.
        cotangents: Those of the active outputs, in order.
    """
    (taped,) = compiled.taped.values()
    layout = compiled.layout
    state: State = before_run(compiled, cotangents) | {"left": np.int32(1)}
    state = pulled(compiled, taped, taped.whole, operands, state, "left", PLAIN)
    outs = [output_of(compiled, v, operands, state) for v in compiled.program.outs]
    places = [p for p in layout.places("operand") if p in layout.active]
    return [*outs, *(state["d", p] for p in places), *_counts()]


def _counts() -> list[Any]:
    """Those of one step that is only reversed."""
    counts = SweepCounts(INT(1), INT(0), INT(0), INT(0), np.int32(0))
    return [jnp.asarray(each) for each in counts if each is not None]

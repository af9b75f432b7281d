"""A program of a single block: its derivative, without anything that steers.

A straight line, or one whose loops are so small that they stay operations, is one step.
Its sweep restores nothing, stores nothing and advances nothing, and no count of it
depends on the run, so the loop of turns and the controller in it are left out:

    in general:  while unfinished: restore? -> advance -> store? -> reverse a stage?
    one block:   (outputs, cotangents) = (vjp of the block)(operands, cotangents)

What the block computes is the same in both. Without a loop around it a program of this
kind compiles in a third of the time (`benchmarks/jax/compile_time.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from retape.engines.jaxpr.codegen._allocate import WRITTEN
from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.codegen._step_vjp import whole_vjp
from retape.engines.jaxpr.control._settings import Settings
from retape.engines.jaxpr.control._splits import INT
from retape.engines.jaxpr.nest._resumable_nest import OK, State
from retape.engines.jaxpr.sweep._state import SweepCounts, before_run
from retape.engines.jaxpr.sweep._tapeless import pulled
from retape.engines.jaxpr.sweep._values import output_of
from retape.engines.jaxpr.xla._scalar_guards import needs_guards


def is_single_block(compiled: Compiled, settings: Settings) -> bool:
    """Tell whether nothing needs to be steered.

    Not so where scalars are to be kept out of the loops over arrays
    (`xla/_scalar_guards`), or the block is to hold less (`Settings.thrift`): both take
    a truth that the compiler cannot know, and a loop has one.
    """
    if len(compiled.taped) > 1 or compiled.program.length != 1 or settings.thrift:
        return False
    (taped,) = compiled.taped.values()
    return taped.ending and not needs_guards(whole_vjp(taped))


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
    state: State = before_run(compiled, cotangents) | {OK: None, "left": np.int32(1)}
    state = pulled(compiled, taped, whole_vjp(taped), operands, state, "left")
    outs = [output_of(compiled, v, operands, state) for v in compiled.program.outs]
    places = [p for p in layout.places("operand") if p in layout.active]
    assert state[WRITTEN] is not None
    return [*outs, *(state["d", p] for p in places), *_counts()]


def _counts() -> list[Any]:
    """Those of one step that is only reversed."""
    counts = SweepCounts(INT(1), INT(0), INT(0), INT(0), np.int32(0))
    return [jnp.asarray(each) for each in counts if each is not None]

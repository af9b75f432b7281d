"""What a sweep hands back when its turns are over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import lax

from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.control._integers import INT
from retape.engines.jaxpr.nest._resumable_nest import State
from retape.engines.jaxpr.sweep._state import SweepCounts, register_outs
from retape.engines.jaxpr.sweep._values import output_of
from retape.engines.jaxpr.sweep._watch import FIRST, NORMS


def results(compiled: Compiled, operands: Sequence[Any], state: State) -> list[Any]:
    """Outputs, cotangents and counts, one after the other.

    Args:
        compiled: The program.
        operands: Inputs, then constants.
        state: That after the last turn.
    """
    outs = [
        _out(compiled, i, operands, state) for i in range(len(compiled.program.outs))
    ]
    layout = compiled.layout
    places = [p for p in layout.places("operand") if p in layout.active]
    counts = SweepCounts(
        lax.convert_element_type(state["n"], INT),
        state["advances"],
        state["stores"],
        state["restores"],
        state["peak"],
        state.get(NORMS),
        state.get(FIRST),
    )
    given = [each for each in counts if each is not None]
    return [*outs, *(state["d", p] for p in places), *given]


def _out(compiled: Compiled, i: int, operands: Sequence[Any], state: State) -> Any:
    """An output's value after the run."""
    if i in register_outs(compiled):
        return state["out", i]
    return output_of(compiled, compiled.program.outs[i], operands, state)

"""`advance` and `reverse` of a program, compiled once each for the host to call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from retape.engines.jaxpr.codegen._allocate import WRITTEN
from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.codegen._share_cotangents import without_sharing
from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.nest._resumable_nest import State, emit
from retape.engines.jaxpr.sweep._forward import Advance, Tape
from retape.engines.jaxpr.sweep._last_block import ReverseLast
from retape.engines.jaxpr.sweep._state import empty_tape
from retape.engines.jaxpr.sweep._tapeless import Tapeless
from retape.engines.jaxpr.sweep._values import output_of
from retape.engines.jaxpr.xla._ahead_of_time import call_compiled


class CompiledSteps:
    """The jitted `advance` and `reverse` of a machine, on a capsule's values.

    Args:
        compiled: The program.
        stage: The longest stage: it fixes the size of the tape.

    Attributes:
        places: Of the values after the program counter, in order.
        active: Places that have a cotangent, in order.
    """

    def __init__(self, compiled: Compiled, stage: int) -> None:
        # What a capsule holds is taken up again, so that it is never something else.
        layout = without_sharing(compiled.layout)
        self.compiled = replace(compiled, layout=layout)
        self.stage = stage
        self.places = [*layout.places("register"), *layout.places("resident")]
        self.active = sorted(layout.active)
        self._advancing = jax.jit(self._advance)
        self._reversing = jax.jit(self._reverse)

    def advance(self, *given: Any) -> tuple[list[Any], Any]:
        """Values after some steps, and how many those were; see `_advance`."""
        return call_compiled(self._advancing, *given)

    def reverse(self, *given: Any) -> tuple[list[Any], list[Any]]:
        """Cotangents before a stage, and the program's outputs; see `_reverse`."""
        return call_compiled(self._reversing, *given)

    def _advance(
        self, values: Sequence[Any], operands: Sequence[Any], steps: Any
    ) -> tuple[list[Any], Any]:
        state = self._state(values) | {"left": steps}
        state = emit(self.compiled, Advance(self.compiled, operands), state)
        return [state["pc"], *(state[p] for p in self.places)], steps - state["left"]

    def _reverse(
        self,
        values: Sequence[Any],
        operands: Sequence[Any],
        steps: Any,
        cotangents: Sequence[Any],
    ) -> tuple[list[Any], list[Any]]:
        state = self._state(values) | {"left": steps, "taped": jnp.int32(0)}
        state |= {("d", p): c for p, c in zip(self.active, cotangents, strict=True)}
        state["trace"] = jnp.zeros(self.stage, np.int32)
        if self.stage == 1:
            state = emit(self.compiled, Tapeless(self.compiled, operands), state)
            return [state["d", p] for p in self.active], self._outs(operands, state)
        state |= empty_tape(self.compiled, self.stage)
        state = emit(self.compiled, Tape(self.compiled, operands), state)
        state = emit(self.compiled, ReverseLast(self.compiled, operands), state)
        return [state["d", p] for p in self.active], self._outs(operands, state)

    def _state(self, values: Sequence[Any]) -> State:
        pc, *rest = values
        given = {"pc": pc, WRITTEN: jnp.asarray(False)}
        return {**given, **dict(zip(self.places, rest, strict=True))}

    def _outs(self, operands: Sequence[Any], state: State) -> list[Any]:
        outs = self.compiled.program.outs
        return [output_of(self.compiled, o, operands, state) for o in outs]


@cached(32)
def compiled_steps(compiled: Compiled, stage: int) -> CompiledSteps:
    """The same for the same program and stage."""
    return CompiledSteps(compiled, stage)

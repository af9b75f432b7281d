"""`advance` and `reverse` of a program, compiled once each for the host to call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._ahead import called
from ._compile import Compiled
from ._direct import Direct
from ._ending import Back
from ._forward import Advance, Tape
from ._ir import Lit
from ._layout import WRITTEN
from ._nest import State, run
from ._remembered import remembered
from ._state import empty_tape
from ._turned import unturned


class Motions:
    """What a machine does with a capsule's values.

    Args:
        compiled: The program.
        stage: The longest stage: it fixes the size of the tape.

    Attributes:
        places: Of the values after the program counter, in order.
        active: Places that have a cotangent, in order.
    """

    def __init__(self, compiled: Compiled, stage: int) -> None:
        # What a capsule holds is taken up again, so that it is never something else.
        layout = unturned(compiled.layout)
        self.compiled = replace(compiled, layout=layout)
        self.stage = stage
        self.places = [*layout.places("slot"), *layout.places("kept")]
        self.active = sorted(layout.active)
        self._advancing = jax.jit(self._advance)
        self._reversing = jax.jit(self._reverse)

    def advance(self, *given: Any) -> tuple[list[Any], Any]:
        """Values after some steps, and how many those were; see `_advance`."""
        return called(self._advancing, *given)

    def reverse(self, *given: Any) -> tuple[list[Any], list[Any]]:
        """Cotangents before a stage, and the program's outputs; see `_reverse`."""
        return called(self._reversing, *given)

    def _advance(
        self, values: Sequence[Any], operands: Sequence[Any], steps: Any
    ) -> tuple[list[Any], Any]:
        state = self._state(values) | {"left": steps}
        state = run(self.compiled, Advance(self.compiled, operands), state)
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
            state = run(self.compiled, Direct(self.compiled, operands), state)
            outs = [self._out(o, operands, state) for o in self.compiled.program.outs]
            return [state["d", p] for p in self.active], outs
        state |= empty_tape(self.compiled, self.stage)
        state = run(self.compiled, Tape(self.compiled, operands), state)
        state = run(self.compiled, Back(self.compiled, operands), state)
        outs = [self._out(o, operands, state) for o in self.compiled.program.outs]
        return [state["d", p] for p in self.active], outs

    def _state(self, values: Sequence[Any]) -> State:
        pc, *rest = values
        given = {"pc": pc, WRITTEN: jnp.asarray(False)}
        return {**given, **dict(zip(self.places, rest, strict=True))}

    def _out(self, atom: Any, operands: Sequence[Any], state: State) -> Any:
        if isinstance(atom, Lit):
            return jnp.asarray(atom.value, atom.aval.dtype)
        place = self.compiled.layout.where[atom]
        return operands[place.index] if place.kind == "operand" else state[place]


@remembered(32)
def motions(compiled: Compiled, stage: int) -> Motions:
    """The same for the same program and stage."""
    return Motions(compiled, stage)

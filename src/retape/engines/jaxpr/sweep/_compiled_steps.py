"""`advance` and `reverse` of a program, compiled once each for the host to call.

For a GPU their loops have known trip counts (`nest/_known_trips`), a test before each
chunk: so `advance` is enqueued in parts of up to 64 steps, and not step by step.

In a run the cotangents after a stage take the place of those before it, which nobody
asks for again: with many parameters they are most of what a sweep holds. A capsule
cannot give its place: it may be a snapshot, and would have to be copied whenever it is
stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from retape.engines.jaxpr.codegen._allocate import WRITTEN
from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.codegen._share_cotangents import without_sharing
from retape.engines.jaxpr.control._settings import step_type
from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.nest._chunk_sizes import chunk_sizes
from retape.engines.jaxpr.nest._known_trips import emit
from retape.engines.jaxpr.nest._resumable_nest import Pass, State
from retape.engines.jaxpr.sweep._forward import Advance, Tape
from retape.engines.jaxpr.sweep._last_block import ReverseLast
from retape.engines.jaxpr.sweep._state import empty_tape, output_of
from retape.engines.jaxpr.sweep._tapeless import Tapeless
from retape.engines.jaxpr.xla._ahead_of_time import call_compiled
from retape.plan._options import Loops


class CompiledSteps:
    """The jitted `advance` and `reverse` of a machine, on a capsule's values.

    Args:
        compiled: The program.
        stage: The longest stage: it fixes the size of the tape.
        loops: "device" for loops of known trip count.
        gives_place: Whether cotangents give their place to those before them.

    Attributes:
        places: Of the values after the program counter, in order.
        active: Places that have a cotangent, in order.
    """

    def __init__(
        self,
        compiled: Compiled,
        stage: int,
        loops: Loops | None = None,
        *,
        gives_place: bool = False,
    ) -> None:
        # What a capsule holds is taken up again, so that it is never something else.
        layout = without_sharing(compiled.layout)
        self.compiled = replace(compiled, layout=layout)
        self.stage = stage
        by_chunks = loops == "device"
        self._sizes = chunk_sizes(self.compiled, stage) if by_chunks else None
        self.places = [*layout.places("register"), *layout.places("resident")]
        self.active = sorted(layout.active)
        self._advancing = jax.jit(self._advance)
        given = (3,) if gives_place else ()
        self._reversing = jax.jit(self._reverse, donate_argnums=given)

    def advance(self, *given: Any) -> tuple[list[Any], Any]:
        """Values after some steps, and how many those were; see `_advance`."""
        return call_compiled(self._advancing, *given)

    def reverse(self, *given: Any) -> tuple[list[Any], list[Any]]:
        """Cotangents before a stage, and the program's outputs; see `_reverse`."""
        return call_compiled(self._reversing, *given)

    def _advance(
        self, values: Sequence[Any], operands: Sequence[Any], steps: Any
    ) -> tuple[list[Any], Any]:
        state = self._state(values) | {"left": self._as_steps(steps)}
        state = self._emit(Advance(self.compiled, operands), state)
        made = steps - lax.convert_element_type(state["left"], steps.dtype)
        return [state["pc"], *(state[p] for p in self.places)], made

    def _reverse(
        self,
        values: Sequence[Any],
        operands: Sequence[Any],
        steps: Any,
        cotangents: Sequence[Any],
    ) -> tuple[list[Any], list[Any]]:
        left = self._as_steps(steps)
        state = self._state(values) | {"left": left, "taped": jnp.int32(0)}
        state |= {("d", p): c for p, c in zip(self.active, cotangents, strict=True)}
        state["trace"] = jnp.zeros(self.stage, np.int32)
        if self.stage == 1:
            state = self._emit(Tapeless(self.compiled, operands), state, 1)
            return [state["d", p] for p in self.active], self._outs(operands, state)
        state |= empty_tape(self.compiled, self.stage)
        state = self._emit(Tape(self.compiled, operands), state, self.stage)
        state = self._emit(ReverseLast(self.compiled, operands), state, self.stage)
        return [state["d", p] for p in self.active], self._outs(operands, state)

    def _emit(self, going: Pass, state: State, at_most: int | None = None) -> State:
        """The nest for one pass; no more steps than `at_most` are ever asked for."""
        return emit(self.compiled, going, state, self._sizes, at_most=at_most)

    def _as_steps(self, number: Any) -> Any:
        """Steps to make, counted in 32 bits where no more of them are known to be."""
        length = self.compiled.program.length
        if length is None:
            return number
        return lax.convert_element_type(number, step_type(length))

    def _state(self, values: Sequence[Any]) -> State:
        pc, *rest = values
        given = {"pc": pc, WRITTEN: jnp.asarray(False)}
        return {**given, **dict(zip(self.places, rest, strict=True))}

    def _outs(self, operands: Sequence[Any], state: State) -> list[Any]:
        outs = self.compiled.program.outs
        return [output_of(self.compiled, o, operands, state) for o in outs]


@cached(32)
def compiled_steps(
    compiled: Compiled,
    stage: int,
    loops: Loops | None = None,
    *,
    gives_place: bool = False,
) -> CompiledSteps:
    """The same for the same program, stage, form of loops, and what gives its place."""
    return CompiledSteps(compiled, stage, loops, gives_place=gives_place)

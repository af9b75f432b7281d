"""Registers into snapshots and back, in place.

Whether a snapshot is stored or restored is known at run time only. A conditional would
copy what goes through it, every buffer of all snapshots; a loop of no or one trip
changes them where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.control._settings import Settings
from retape.engines.jaxpr.jaxprs._avals import zeros_as
from retape.engines.jaxpr.jaxprs._row_ops import put, put_if, row
from retape.engines.jaxpr.jaxprs._scalar_ops import chosen, where
from retape.engines.jaxpr.nest._resumable_nest import State
from retape.engines.jaxpr.primitives._host_buffer import fetch, stash
from retape.engines.jaxpr.sweep._state import far_places

New = Callable[[Any, Sequence[Any]], Sequence[Any]]
"""From a truth and old values to new ones of the same types."""


def once(wanted: Any, state: State, keys: Sequence[Any], new: New) -> State:
    """The state with new values for these keys if `wanted`, in place.

    `new` is given `wanted` once more: what it computes from that is computed only then;
    anything else XLA does beforehand.
    """

    def body(carry: Sequence[Any]) -> list[Any]:
        return [jnp.asarray(False), *new(carry[0], carry[1:])]

    _, *values = lax.while_loop(
        lambda c: c[0], body, [wanted, *(state[k] for k in keys)]
    )
    return state | dict(zip(keys, values, strict=True))


class Snapshots:
    """The buffers `("snapshot", register)` of a state, a row for each slot."""

    def __init__(self, compiled: Compiled, settings: Settings) -> None:
        self.registers = [*sorted(compiled.layout.resumed), "pc"]
        self.far = far_places(compiled, settings)
        # What goes to the host and comes from there must not do so in vain.
        self.choose = settings.device and not self.far

    def load(self, state: State, wanted: Any, slot: Any, at: Any) -> State:
        """The state with the registers of the snapshot of stage `at`, if wanted."""

        def loaded(wanted: Any, _: Sequence[Any]) -> list[Any]:
            # A large row is not to be copied at every turn.
            index, _ = lax.optimization_barrier((slot, wanted))
            return [self._read(state, k, index, at) for k in self.registers]

        return self.if_wanted(wanted, state, self.registers, loaded)

    def save(self, state: State, wanted: Any, slot: Any) -> State:
        """The state with its registers written into a slot, if wanted."""
        keys = [("snapshot", k) for k in self.registers]

        def saved(_: Any, buffers: Sequence[Any]) -> list[Any]:
            pairs = zip(self.registers, buffers, strict=True)
            return [self._written(k, buffer, state[k], slot) for k, buffer in pairs]

        if self.choose:
            rows = {k: put_if(wanted, state[k], state[k[1]], slot) for k in keys}
            return state | rows
        return once(wanted, state, keys, saved)

    def if_wanted(
        self, wanted: Any, state: State, keys: Sequence[Any], new: New
    ) -> State:
        """`once`; on an accelerator the new values are made in any case."""
        if not self.choose:
            return once(wanted, state, keys, new)
        values = new(wanted, [state[k] for k in keys])
        pairs = zip(keys, values, strict=True)
        return state | {k: chosen(wanted, v, state[k]) for k, v in pairs}

    def _read(self, state: State, register: Any, slot: Any, at: Any) -> Any:
        buffer = state["snapshot", register]
        if register not in self.far:
            return row(buffer, slot)
        found = fetch(buffer, slot)
        # The start state is blank, and nobody wrote that to the host.
        return where(at == 0, zeros_as(found), found)

    def _written(self, register: Any, buffer: Any, value: Any, slot: Any) -> Any:
        write = stash if register in self.far else put
        return write(buffer, value, slot)

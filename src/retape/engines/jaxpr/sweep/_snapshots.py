"""Registers into snapshots and back, in place.

Whether a snapshot is stored or restored is known at run time only. A conditional would
copy what goes through it, every buffer of all snapshots; a loop of no or one trip
changes them where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.control._online_placement import (
    Placement,
    after_placing,
    leaving,
)
from retape.engines.jaxpr.control._settings import INT, Settings
from retape.engines.jaxpr.jaxprs._avals import zeros_as
from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.jaxprs._row_ops import put, put_if, row
from retape.engines.jaxpr.jaxprs._scalar_ops import at_least, chosen, where
from retape.engines.jaxpr.nest._resumable_nest import State
from retape.engines.jaxpr.primitives._host_buffer import fetch, stash
from retape.engines.jaxpr.sweep._state import far_places
from retape.engines.jaxpr.xla._single_kernel import kernel
from retape.schedule._placing._online_memory import FORGOTTEN

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
        """The state with its registers and their stage in a slot, if wanted."""
        values: State = {("snapshot", k): state[k] for k in self.registers}
        values["at"] = state["here"]

        def saved(_: Any, buffers: Sequence[Any]) -> list[Any]:
            pairs = zip(values.items(), buffers, strict=True)
            return [self._written(k, b, value, slot) for (k, value), b in pairs]

        if self.choose:
            rows = {k: put_if(wanted, state[k], v, slot) for k, v in values.items()}
            return state | rows
        return once(wanted, state, list(values), saved)

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

    def _written(self, key: Any, buffer: Any, value: Any, slot: Any) -> Any:
        write = stash if key[1] in self.far else put
        return write(buffer, value, slot)


# Placing them while the end is unknown ---------------------------------------------


def place_waiting(state: State, stage: Any, asked: Any, *, at_once: bool) -> State:
    """The state with what waits in a free slot kept as a snapshot, or forgotten.

    Args:
        state: That of the sweep.
        stage: The stage before which the capsule stands that waits.
        asked: Whether the run goes on; if not nothing changes.
        at_once: Whether no loop may decide, as on an accelerator.
    """
    held = lax.convert_element_type(state["newest"] + 1, INT)
    old = Placement(state["at"], state["slot"], held, state["phase"], state["base"])
    number = _placing(at_once)
    leaves = number_if(asked, INT(FORGOTTEN), lambda _: number(old, stage), at_once)
    new = after_placing(old, stage, leaves)
    keep, held = leaves >= 0, lax.convert_element_type(new.held, np.int32)
    return state | {
        "slot": new.slot,
        "newest": held - 1,
        "phase": new.phase,
        "base": new.base,
        "stores": state["stores"] + keep,
        "peak": at_least(state["peak"], where(keep, held, 0)),
    }


def number_if(
    asked: Any, otherwise: Any, number: Callable[[Any], Any], at_once: bool
) -> Any:
    """An integer that is computed only if it is asked for; in a batch, if any asks.

    From behind a loop it is only read; else XLA would make it anew for each result that
    follows from it, nine times in a controller.
    """
    if at_once:
        return where(asked, number(asked), otherwise)
    unless = {"number": jnp.asarray(otherwise)}
    return once(asked, unless, ["number"], lambda a, _: [number(a)])["number"]


@cached(2)
def _placing(at_once: bool) -> Callable[..., Any]:
    return kernel(lambda state, stage: leaving(state, stage, at_once))

"""The state of a sweep: what its one loop carries, and how it begins.

    Place                a register, or a kept value
    ("d", place)         a cotangent
    ("snapshot", place)  the snapshots of a register, one row for each slot
    WRITTEN              whether all rows are written: the last block was swept back
    ("out", i)           an output that lives in a register, kept from the end on
    ("pool", i), tops    the tape, and how many rows of each pool are filled

and the controller's integers:

    pc, left     program counter, and steps still allowed
    trace, taped the blocks that the stage on the tape went through, and how many
    at           by slot: stage at which the snapshot in it stands
    slot         by age: the slot that a snapshot is in; then the free slots, in the
                 first of which, while the end is unknown, are the registers at the
                 start of the current stage
    newest       the last of them in use, -1 if there is none
    sweeps       by age: how often what is right of a snapshot may be advanced, for the
                 split that asks
    here         stage at which the registers stand
    fresh        whether the registers are where the sweep goes on
    end          stages still to be reversed: the goal of the descent
    n            steps of the run
    back         whether the end was found, of a run of unknown length
    phase, base  of the online placement, if there is one
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.extend import core

from retape.engines.jaxpr.codegen._allocate import WRITTEN, Location
from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.control._settings import (
    FOREVER,
    INT,
    Integer,
    Settings,
    stage_type,
    step_type,
)
from retape.engines.jaxpr.ir._ir import Atom, Lit, Var
from retape.engines.jaxpr.jaxprs._avals import blank, zeros
from retape.engines.jaxpr.nest._both_branches import without_waits
from retape.engines.jaxpr.nest._resumable_nest import State
from retape.engines.jaxpr.primitives._host_buffer import (
    allocate_on_host,
    can_wait,
    check_host_memory,
)
from retape.engines.jaxpr.xla._scalar_guards import evaluate_guarded

COUNTED = frozenset({"advances", "stores", "restores", "peak"})
"""Keys of what is only counted: nothing is decided by it."""


class SweepCounts(NamedTuple):
    """Counters of a sweep: scalars, on the device."""

    steps: Any
    advances: Any
    stores: Any
    restores: Any
    peak_snapshots: Any
    norms: Any = None
    """See `_watch`; `None` if nobody asked."""
    first_norm: Any = None
    """The norm after the first step, on the way back, that has one."""


def initial(compiled: Compiled, settings: Settings, cotangents: Sequence[Any]) -> State:
    """Everything that the loop carries, before its first turn."""
    layout, d = compiled.layout, snapshot_slots(compiled, settings)
    if settings.on_host:
        check_host_memory()
    state: State = before_run(compiled, cotangents)
    # Slot 0 holds the start state from the beginning: all registers are blank there.
    state |= {("snapshot", p): blank(layout.avals[p], d) for p in layout.resumed}
    for p in far_places(compiled, settings):
        state["snapshot", p] = allocate_on_host(state["snapshot", p])
    if not settings.direct:
        state |= empty_tape(compiled, settings.stage)
    for i in register_outs(compiled):
        state["out", i] = blank(compiled.program.outs[i].aval)
    return state | _integers(compiled.program.length, settings, d)


def before_run(compiled: Compiled, cotangents: Sequence[Any]) -> State:
    """Registers, kept values and cotangents, the outputs' ones where they will be."""
    layout = compiled.layout
    state: State = {p: blank(layout.avals[p]) for p in layout.places("register")}
    state |= {p: layout.blank(p) for p in layout.places("resident")}
    state |= {("d", p): blank(layout.avals[p]) for p in layout.active - layout.turned}
    state[WRITTEN] = jnp.asarray(False)
    seed(compiled, cotangents, state)
    return state


def empty_tape(compiled: Compiled, stage: int) -> State:
    """Pools for a stage of so many steps, and how many rows of each are filled."""
    pools = compiled.pool_rows(stage)
    state: State = {("pool", i): zeros(k, n) for i, (k, n) in enumerate(pools.items())}
    return state | ({"tops": jnp.zeros(len(pools), np.int32)} if pools else {})


def far_places(compiled: Compiled, settings: Settings) -> frozenset[Location]:
    """The registers whose snapshots wait in the host's memory."""
    if not settings.on_host or snapshot_slots(compiled, settings) == 1:
        # The only slot is that of the start state, to which nothing is ever written.
        return frozenset()
    layout = compiled.layout
    return frozenset(p for p in layout.resumed if can_wait(layout.avals[p]))


def snapshot_slots(compiled: Compiled, settings: Settings) -> int:
    """Slots: while the end is unknown there is one for the start of the stage."""
    online = compiled.program.length is None and settings.forward == "online"
    return settings.snapshots + online


def _integers(known: int | None, settings: Settings, d: int) -> State:
    stages = FOREVER if known is None else -(-known // settings.stage)
    online = known is None and settings.forward == "online"
    # A run of a single stage never goes back to its start.
    begun = int(known is not None and stages > 1)
    kind = stage_kind(known, settings)
    state: State = {"back": jnp.asarray(False)} if known is None else {}
    if online:
        state |= {"phase": jnp.zeros((), kind), "base": jnp.zeros((), kind)}
    if settings.split == "treeverse":
        state["sweeps"] = jnp.full(d, settings.sweeps or 0, kind)
    return state | {
        "pc": jnp.int32(0),
        "left": jnp.zeros((), step_type(known)),
        "trace": jnp.zeros(settings.stage, np.int32),
        "taped": jnp.int32(0),
        ("snapshot", "pc"): jnp.zeros(d, np.int32),
        "at": jnp.zeros(d, kind),
        "slot": jnp.arange(d, dtype=np.int32),
        "newest": jnp.int32(-1 if online else 0),
        "here": jnp.zeros((), kind),
        "fresh": jnp.asarray(True),
        "end": jnp.asarray(kind(stages)),
        "n": jnp.asarray(kind(known or 0)),
        "advances": jnp.zeros((), INT),
        "stores": jnp.asarray(INT(begun)),
        "restores": jnp.zeros((), INT),
        "peak": jnp.int32(begun),
    }


def stage_kind(known: int | None, settings: Settings) -> Integer:
    """The type of positions; see `control/_settings`."""
    given = settings.stage, settings.snapshots, settings.sweeps or 0
    return stage_type(known, *given)


def seed(compiled: Compiled, cotangents: Sequence[Any], state: State) -> None:
    """Add the outputs' cotangents to those of the places where the outputs will be."""
    given = iter(cotangents)
    for out in compiled.program.outs:
        if isinstance(out, Var) and out.active:
            key = ("d", compiled.layout.where[out])
            state[key] = state[key] + next(given)
    assert next(given, None) is None, "one cotangent for each active output"


def register_outs(compiled: Compiled) -> dict[int, Location]:
    """Outputs that live in registers, which the sweep back will overwrite."""
    found: dict[int, Location] = {}
    for i, out in enumerate(compiled.program.outs):
        if isinstance(out, Var) and compiled.layout.where[out].kind == "register":
            found[i] = compiled.layout.where[out]
    return found


# Values by where they live; operands stand beside the state ------------------------


def value_of(
    compiled: Compiled, var: Var, operands: Sequence[Any], state: State
) -> Any:
    """The value of a variable: an operand, or what its place in the state holds."""
    place = compiled.layout.where[var]
    return operands[place.index] if place.kind == "operand" else state[place]


def output_of(
    compiled: Compiled, atom: Atom, operands: Sequence[Any], state: State
) -> Any:
    """The value of one of the program's outputs, in the state at the end of a run."""
    if isinstance(atom, Lit):
        return jnp.asarray(atom.value, atom.aval.dtype)
    return value_of(compiled, atom, operands, state)


def evaluate_block(
    jaxpr: core.ClosedJaxpr,
    values: Sequence[Any],
    truth: Any,
    *,
    keeps_branches: bool = False,
) -> list[Any]:
    """Evaluate a block's code, or its derivative.

    Args:
        jaxpr: The code.
        values: Its inputs.
        truth: A traced boolean that is true, for branches; `None` for an accelerator.
        keeps_branches: Whether its conditionals are there to hold less at once.
    """
    if truth is None and not keeps_branches:
        jaxpr = without_waits(jaxpr)
    return evaluate_guarded(jaxpr, values, truth)

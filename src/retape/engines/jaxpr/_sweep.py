"""A whole divide-and-conquer gradient as one XLA program.

One loop does everything. Each turn of it brings the state to where it must be
(restored from a snapshot, or simply still there), advances it, stores it if that is
called for, and if it now stands before the last stage that is left, tapes that stage
and sweeps it back:

    turn:   restore?  ->  advance k steps  ->  store?  ->  tape and reverse a stage?

Every question mark is a loop of no or one trip, which XLA keeps in place where a
conditional would copy. So the program holds exactly one copy of the advance code, one
of the taping code and one of the reverse code, whatever the schedule.

The forward sweep is the same loop in another *mode*. If the number of steps is known,
it is just the first descent. If not, either a first run counts them (`count`), or
snapshots are placed while the end is unknown and thinned when the slots run out
(`online`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ._compile import Compiled
from ._control import FOREVER, INT, SPLITS, sweeps
from ._ir import Aval, Lit, Var
from ._nest import Advance, Reverse, State, Tape, run

COUNT, ONLINE, BACK = np.int32(0), np.int32(1), np.int32(2)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the plan fixed: sizes are shapes, so all of it is known at trace time."""

    snapshots: int
    """Slots, that of the start state included."""
    stage: int
    """Steps in a stage."""
    split: str = "binomial"
    forward: Literal["count", "online"] = "online"
    """How an unknown number of steps is dealt with."""
    sweeps: int | None = None
    """Most times that a step is advanced; only the treeverse split asks for it."""


class Counts(NamedTuple):
    """What a sweep did: scalars, on the device."""

    steps: Any
    advances: Any
    stores: Any
    restores: Any
    peak_snapshots: Any


def sweep(
    compiled: Compiled,
    settings: Settings,
    operands: Sequence[Any],
    cotangents: Sequence[Any],
) -> tuple[list[Any], list[Any], Counts]:
    """The program's outputs, the cotangents of its active operands, and the counts.

    Args:
        compiled: The program.
        settings: What the plan fixed.
        operands: Inputs, then constants.
        cotangents: Those of the differentiable outputs, in order.
    """
    # Step counts are 64-bit whatever the user's setting: 2**31 steps are an hour's
    # work. All code from here on gives its types explicitly.
    with jax.enable_x64(True):
        return _Sweep(compiled, settings, operands).run(cotangents)


class _Sweep:
    def __init__(
        self, compiled: Compiled, settings: Settings, operands: Sequence[Any]
    ) -> None:
        self.compiled = compiled
        self.settings = settings
        self.operands = operands
        self.layout = compiled.layout
        self.slots = self.layout.places("slot")
        self.known = compiled.program.length
        self.saved_outs = [
            i
            for i, o in enumerate(compiled.program.outs)
            if isinstance(o, Var) and self.layout.where[o].kind == "slot"
        ]

    def run(self, cotangents: Sequence[Any]) -> tuple[list[Any], list[Any], Counts]:
        state = self.initial(cotangents)
        keys = sorted(state, key=str)

        def turn(carry: list[Any]) -> list[Any]:
            after = self.turn(dict(zip(keys, carry, strict=True)))
            return [after[k] for k in keys]

        def unfinished(carry: list[Any]) -> Any:
            return carry[keys.index("end")] > 0

        carry = lax.while_loop(unfinished, turn, [state[k] for k in keys])
        state = dict(zip(keys, carry, strict=True))
        outs = [self.out(i, state) for i in range(len(self.compiled.program.outs))]
        places = [p for p in self.layout.places("operand") if p in self.layout.active]
        counts = Counts(
            state["n"],
            state["advances"],
            state["stores"],
            state["restores"],
            state["peak"],
        )
        return outs, [state["d", p] for p in places], counts

    # State ---------------------------------------------------------------------

    def initial(self, cotangents: Sequence[Any]) -> State:
        """Everything that the loop carries, before its first turn."""
        d, layout = self.settings.snapshots, self.layout
        state: State = {p: blank(layout.avals[p]) for p in self.slots}
        for place in self.slots:
            state["snapshot", place] = blank(layout.avals[place], d)
        state |= {p: blank(layout.avals[p]) for p in layout.places("kept")}
        state |= {("d", p): blank(layout.avals[p]) for p in layout.active}
        self.seed(cotangents, state)
        rows = self.compiled.pool_rows(self.settings.stage)
        for i, (kind, count) in enumerate(rows.items()):
            state["pool", i] = jnp.zeros((count, *kind[0]), kind[1])
            state["top", i] = jnp.int32(0)
        for i in self.saved_outs:
            state["out", i] = blank(self.compiled.program.outs[i].aval)
        return state | self.integers(d)

    def integers(self, d: int) -> State:
        """The controller's part of the state.

        pc, left     program counter, and steps still allowed
        snapshot pc  the program counters of the snapshots
        at, slot     by age: stage at which a snapshot stands, and the slot it is in
        newest       the last of them in use
        here         stage at which the registers stand
        fresh        whether the registers are those of the newest snapshot
        end          stages still to be reversed: the goal of the descent
        n            steps of the run
        sweeps       by age: how often what is right of a snapshot may be advanced
        every        spacing of snapshots while the end is unknown
        """
        known = self.known
        stages = -1 if known is None else -(-known // self.settings.stage)
        unknown = COUNT if self.settings.forward == "count" else ONLINE
        return {
            "pc": jnp.int32(0),
            "left": jnp.zeros((), INT),
            ("snapshot", "pc"): jnp.zeros(d, np.int32),
            "at": jnp.zeros(d, INT),
            "slot": jnp.arange(d, dtype=np.int32),
            "newest": jnp.int32(0),
            "here": jnp.zeros((), INT),
            "fresh": jnp.asarray(True),
            "end": jnp.asarray(FOREVER if known is None else INT(stages)),
            "n": jnp.asarray(INT(0 if known is None else known)),
            "mode": jnp.asarray(unknown if known is None else BACK),
            "sweeps": jnp.full(d, self.settings.sweeps or 0, INT),
            "every": jnp.ones((), INT),
            "trace": jnp.zeros(self.settings.stage, np.int32),
            "taped": jnp.int32(0),
            "advances": jnp.zeros((), INT),
            # A run of a single stage never goes back to its start.
            "stores": jnp.asarray(INT(stages > 1)),
            "restores": jnp.zeros((), INT),
            "peak": jnp.int32(stages > 1),
        }

    def seed(self, cotangents: Sequence[Any], state: State) -> None:
        """Put the outputs' cotangents where the outputs will be at the end."""
        given = iter(cotangents)
        for out in self.compiled.program.outs:
            if not jax.dtypes.issubdtype(out.aval.dtype, np.inexact):
                continue
            cotangent = next(given)
            if isinstance(out, Var) and self.layout.where[out] in self.layout.active:
                key = ("d", self.layout.where[out])
                state[key] = state[key] + cotangent

    def out(self, i: int, state: State) -> Any:
        """An output's value after the run."""
        atom = self.compiled.program.outs[i]
        if isinstance(atom, Lit):
            return jnp.asarray(atom.value, atom.aval.dtype)
        place = self.layout.where[atom]
        if place.kind == "operand":
            return self.operands[place.index]
        return state["out", i] if place.kind == "slot" else state[place]

    # One turn ------------------------------------------------------------------

    def turn(self, state: State) -> State:
        state = self.restore(state)
        goal, store, stage, state = self.decide(state)
        begin = state["here"] * INT(self.settings.stage)
        state = self.advance(state, goal)
        if self.known is None:
            state = self.look_for_the_end(state, begin)
            # The end came first: what was decided for its absence is void.
            store = store & (state["pc"] != self.compiled.end)
        state = self.store(state, store)
        return self.reverse_stage(state, stage)

    def decide(self, state: State) -> tuple[Any, Any, Any, State]:
        """The stage to advance to, whether to store there, whether to reverse it."""
        here, newest = state["here"], state["newest"]
        length = state["end"] - here
        if self.known is None:
            # Nothing is cut before the end is known.
            length = jnp.where(state["mode"] == BACK, length, 1)
        free = INT(self.settings.snapshots) - newest
        left = state["sweeps"][newest]
        split = SPLITS[self.settings.split](
            jnp.maximum(length, 2), jnp.maximum(free, 2), left
        )
        stage = (length <= 1) | (free <= 1) | (split >= length - 1)
        goal = jnp.where(stage, state["end"] - 1, here + split)
        state = self.spend_sweep(state, length > 1, left)
        if self.known is not None:
            return goal, ~stage, stage, state
        counting, online = state["mode"] == COUNT, state["mode"] == ONLINE
        every = state["every"]
        goal = jnp.where(online, (here // every + 1) * every, goal)
        goal = jnp.where(counting, FOREVER // INT(self.settings.stage), goal)
        back = state["mode"] == BACK
        return goal, online | (back & ~stage), back & stage, state

    def spend_sweep(self, state: State, cut: Any, left: Any) -> State:
        """What is left of a cut has one sweep less, what is right of it as many."""
        newest, d = state["newest"], self.settings.snapshots
        after = state["sweeps"].at[newest].add(-INT(1) * cut)
        after = after.at[jnp.minimum(newest + 1, d - 1)].set(
            jnp.where(newest + 1 < d, left, after[d - 1])
        )
        return state | {"sweeps": jnp.where(cut, after, state["sweeps"])}

    def advance(self, state: State, goal: Any) -> State:
        steps = (goal - state["here"]) * INT(self.settings.stage)
        state = run(
            self.compiled,
            Advance(self.compiled, self.operands),
            state | {"left": steps},
        )
        made = steps - state["left"]
        moved = state["fresh"] & (made == 0)
        return state | {
            "here": goal,
            "advances": state["advances"] + made,
            "fresh": moved,
            "left": made,
        }

    def look_for_the_end(self, state: State, begin: Any) -> State:
        """The forward sweep of a run of unknown length may just have ended."""
        ended = (state["mode"] != BACK) & (state["pc"] == self.compiled.end)
        n = jnp.where(ended, begin + state["left"], state["n"])
        state = self.capture(state, ended)
        stages = -(-n // INT(self.settings.stage))
        single = ended & (stages <= 1)
        state |= {
            "stores": jnp.where(ended & ~single, state["stores"] + 1, state["stores"]),
            "peak": jnp.where(
                ended & ~single, jnp.maximum(state["peak"], 1), state["peak"]
            ),
        }
        if self.settings.split == "treeverse":
            most, _ = sweeps(stages, INT(self.settings.snapshots))
            state["sweeps"] = jnp.where(ended, most, state["sweeps"])
        return state | {
            "n": n,
            "end": jnp.where(ended, stages, state["end"]),
            "mode": jnp.where(ended, BACK, state["mode"]),
        }

    def store(self, state: State, wanted: Any) -> State:
        if self.known is None and self.settings.forward == "online":
            state = self.thin(state, wanted & (state["mode"] == ONLINE))
            # Thinning may have doubled the spacing past this point.
            skip = (state["mode"] == ONLINE) & (state["here"] % state["every"] != 0)
            wanted = wanted & ~skip
        keys = [("snapshot", p) for p in (*self.slots, "pc")]
        newest = jnp.where(wanted, state["newest"] + 1, state["newest"])
        slot = state["slot"][newest]

        def body(carry: Any) -> Any:
            _, *buffers = carry
            values = [state[p] for p in (*self.slots, "pc")]
            rows = zip(buffers, values, strict=True)
            put = [lax.dynamic_update_index_in_dim(b, v, slot, 0) for b, v in rows]
            return [jnp.asarray(False), *put]

        _, *buffers = lax.while_loop(
            lambda c: c[0], body, [wanted, *(state[k] for k in keys)]
        )
        at = jnp.where(wanted, state["at"].at[newest].set(state["here"]), state["at"])
        return (
            state
            | dict(zip(keys, buffers, strict=True))
            | {
                "newest": newest,
                "at": at,
                "fresh": state["fresh"] | wanted,
                "stores": state["stores"] + wanted,
                "peak": jnp.maximum(state["peak"], wanted * (newest + 1)),
            }
        )

    def thin(self, state: State, wanted: Any) -> State:
        """If all slots are taken, drop every other snapshot and double the spacing."""
        d = self.settings.snapshots
        order = np.concatenate([np.arange(0, d, 2), np.arange(1, d, 2)])
        full = wanted & (state["newest"] == d - 1)
        return state | {
            "at": jnp.where(full, state["at"][order], state["at"]),
            "slot": jnp.where(full, state["slot"][order], state["slot"]),
            "newest": jnp.where(full, np.int32((d + 1) // 2 - 1), state["newest"]),
            "every": jnp.where(full, state["every"] * 2, state["every"]),
        }

    def restore(self, state: State) -> State:
        newest = state["newest"]
        slot = state["slot"][newest]
        wanted = ~state["fresh"]
        if self.known is None and self.settings.forward == "online":
            # In the forward sweep a point that was skipped is simply run on from.
            wanted = wanted & (state["mode"] == BACK)
        keys = [*self.slots, "pc"]

        def body(carry: Any) -> Any:
            buffers = [state["snapshot", k] for k in keys]
            rows = [lax.dynamic_index_in_dim(b, slot, keepdims=False) for b in buffers]
            return [jnp.asarray(False), *rows]

        _, *values = lax.while_loop(
            lambda c: c[0], body, [wanted, *(state[k] for k in keys)]
        )
        return (
            state
            | dict(zip(keys, values, strict=True))
            | {
                "here": jnp.where(wanted, state["at"][newest], state["here"]),
                "fresh": state["fresh"] | wanted,
                "restores": state["restores"] + wanted,
            }
        )

    def reverse_stage(self, state: State, wanted: Any) -> State:
        """Tape the stage before which the state stands, and sweep it back."""
        begin = state["here"] * INT(self.settings.stage)
        steps = jnp.minimum(INT(self.settings.stage), state["n"] - begin)
        left = jnp.where(wanted, steps, INT(0))
        state = state | {"left": left, "taped": jnp.int32(0)}
        state = run(self.compiled, Tape(self.compiled, self.operands), state)
        if self.known is not None:
            state = self.capture(state, wanted & (begin + steps == state["n"]))
        state = run(self.compiled, Reverse(self.compiled, self.operands), state)
        oldest = state["at"][state["newest"]] == state["here"]
        done = wanted & oldest
        return state | {
            "end": jnp.where(wanted, state["here"], state["end"]),
            "newest": state["newest"] - done,
            "fresh": state["fresh"] & ~wanted,
        }

    def capture(self, state: State, wanted: Any) -> State:
        """Keep the outputs that live in slots, which the replay will overwrite."""
        keys = [("out", i) for i in self.saved_outs]
        if not keys:
            return state
        outs = self.compiled.program.outs
        values = [state[self.layout.where[outs[i]]] for i in self.saved_outs]

        def body(carry: Any) -> Any:
            return [jnp.asarray(False), *values]

        _, *kept = lax.while_loop(
            lambda c: c[0], body, [wanted, *(state[k] for k in keys)]
        )
        return state | dict(zip(keys, kept, strict=True))


def blank(aval: Aval, rows: int | None = None) -> Any:
    """Zeros of a type, or `rows` of them stacked."""
    shape = aval.shape if rows is None else (rows, *aval.shape)
    if jax.dtypes.issubdtype(aval.dtype, jax.dtypes.extended):
        key = jax.random.key(0, impl=jax.random.key_impl(aval.dtype))
        return jnp.broadcast_to(key, shape)
    return jnp.zeros(shape, aval.dtype)

"""A whole divide-and-conquer gradient as one XLA program.

Griewank's recursion (1992), with the split of Griewank and Walther's Algorithm 799
(2000), as one loop over a stack of snapshots: what a recursive call would return to is
the newest snapshot and `end`, the stages that are still to be reversed. Siskind and
Pearlmutter's recursion over interrupted programs (Figs. 26 and 27) is the same.

One loop does everything. Each turn of it brings the registers to where they must be
(restored from a snapshot, or simply still there), advances them, stores them if that is
called for, and if they now stand before the last stage that is left, tapes that stage
and sweeps it back:

    turn:   restore?  ->  advance k steps  ->  store?  ->  tape and reverse a stage?

Every question mark is a loop of no or one trip, which XLA keeps in place where a
conditional would copy. So the program holds exactly one copy of the advance code, one
of the taping code and one of the reverse code, whatever the schedule. Where arrays are
small the taping code advances, too (see `sweep/_forward`), and a turn is

    turn:   restore?  ->  advance k steps, tape a stage?  ->  store?  ->  sweep it back?

The forward sweep is the same loop. If the number of steps is known, it is just the
first descent. If not, either a first run counts them ("count"), or snapshots are placed
while the end is unknown ("online"): then the registers at the start of each stage go
into a free slot, and are kept or forgotten once the stage is done; those of the last
stage are the newest snapshot when the sweep back begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.control._next_action import READ, cut, decision
from retape.engines.jaxpr.control._numbers import TRACED, loopless, over
from retape.engines.jaxpr.control._settings import LONGEST_GO, Settings, step_type
from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.jaxprs._row_ops import row
from retape.engines.jaxpr.jaxprs._scalar_ops import (
    at_least,
    at_most,
    where,
)
from retape.engines.jaxpr.nest._carried import Carried
from retape.engines.jaxpr.nest._known_trips import emit
from retape.engines.jaxpr.nest._resumable_nest import Pass, State
from retape.engines.jaxpr.sweep._forward import Advance, Tape, one_copy
from retape.engines.jaxpr.sweep._last_block import ReverseLast
from retape.engines.jaxpr.sweep._snapshots import (
    Snapshots,
    number_if,
    once,
    place_waiting,
)
from retape.engines.jaxpr.sweep._state import register_outs, stage_kind
from retape.engines.jaxpr.sweep._tapeless import Tapeless
from retape.engines.jaxpr.sweep._watch import WatchedPass, watch_stage
from retape.engines.jaxpr.xla._single_kernel import kernel
from retape.schedule._binomial import Numbers
from retape.schedule._split import Split


class Sweep:
    """The turns of one program under one plan."""

    carried: Carried
    """The order in which the loop of turns carries the state."""

    def __init__(
        self,
        compiled: Compiled,
        settings: Settings,
        operands: Sequence[Any],
        *,
        watch: bool,
    ) -> None:
        self.watch = watch
        self.compiled = compiled
        self.settings = settings
        self.operands = operands
        self.layout = compiled.layout
        self.snapshots = Snapshots(compiled, settings)
        self.unknown = compiled.program.length is None
        self.online = self.unknown and settings.forward == "online"
        self.kind = stage_kind(compiled.program.length, settings)
        self.stage = self.kind(settings.stage)
        self.step_kind = step_type(compiled.program.length)
        self.at_once = settings.device
        self.numbers = loopless(settings.snapshots) if self.at_once else TRACED
        self.one_copy = self.may_share_code()

    def may_share_code(self) -> bool:
        """Tell whether the taping code advances, too."""
        return not self.settings.direct and one_copy(self.compiled)

    @property
    def turns(self) -> int | None:
        """How many there are, where no loop is to be tested for it; else `None`."""
        return None

    def begin(self, state: State) -> State:
        """The state before the first turn."""
        return state

    def turn(self, state: State) -> State:
        """One turn: see the module's first lines."""
        state = self.restore(state)
        goal, store, stage, state = self.decide(state)
        begin = state["here"]
        state = self.advance(state, goal, stage)
        if self.unknown:
            state = self.look_for_the_end(state, begin)
        if self.online:
            state = self.place(state, begin)
        state = self.store(state, store)
        return self.reverse_stage(state, stage)

    def decide(self, state: State) -> tuple[Any, Any, Any, State]:
        """The stage to advance to, whether to store there, whether to reverse it."""
        back = state["back"] if self.unknown else state["end"] > 0
        snapshots, split = self.settings.snapshots, self.settings.split
        number = cutting(snapshots, split, self.numbers)
        given = {k: state[k] for k in READ if k in state}
        ahead = number_if(back, self.kind(0), lambda b: number(given, b), self.at_once)
        goal, store, stage, *swept = decision(
            state, ahead, self.settings, unknown=self.unknown
        )
        state = state | dict(zip(["sweeps"], swept, strict=False))
        if not self.unknown:
            return goal, store, stage, state
        # In the turn that follows the rest is decided on anew.
        farthest = state["here"] + max(1, LONGEST_GO // self.settings.stage)
        near = goal <= farthest
        return at_most(goal, farthest), store & near, stage & near, state

    # Moving ----------------------------------------------------------------------

    def advance(self, state: State, goal: Any, stage: Any) -> State:
        """Run to a stage, or to the end; `left` then says how many steps it took.

        With one copy of the forward code the stage is taped in the same go, if it is
        to be reversed.
        """
        steps = self.as_steps((goal - state["here"]) * self.stage)
        state = dict(state)
        if self.one_copy:
            whole = self.as_steps(self.steps_of(goal, state))
            last = where(stage, whole, self.step_kind(0))
            forward = Tape(self.compiled, self.operands, last)
            state |= {"left": steps + last, "taped": jnp.int32(0)}
            state = emit(self.compiled, forward, state)
            made = steps + last - state["left"] - state["taped"]
        else:
            forward = Advance(self.compiled, self.operands)
            state = self.go(forward, state | {"left": steps})
            made = steps - state["left"]
        return state | {
            "here": goal,
            "left": made,
            "fresh": state["fresh"] & (made == 0),
            "advances": state["advances"] + made,
        }

    def look_for_the_end(self, state: State, begin: Any) -> State:
        """The forward sweep of a run of unknown length may just have ended."""
        ended = ~state["back"] & (state["pc"] == self.compiled.end)
        n = where(ended, begin * self.stage + state["left"], state["n"])
        stages = over(n + self.stage - 1, self.stage)
        if self.online:
            # The start of the last stage stands where snapshots do.
            state["newest"] = state["newest"] + ended
            # It was never stored, as far as anybody knows who reads the counts.
            state["restores"] = state["restores"] - ended
        else:
            begun = ended & (stages > 1)
            state["stores"] = state["stores"] + begun
            state["peak"] = at_least(state["peak"], begun.astype(jnp.int32))
        if self.settings.split == "treeverse":
            most, _ = self.numbers.sweeps(stages, self.kind(self.settings.snapshots))
            state["sweeps"] = where(ended, most, state["sweeps"])
        return state | {
            "n": n,
            # A run that has not ended goes on from where it is.
            "fresh": state["fresh"] | ~ended,
            "end": where(ended, stages, state["end"]),
            "back": state["back"] | ended,
        }

    def reverse_stage(self, state: State, wanted: Any) -> State:
        """Tape the stage before which the registers stand, and sweep it back."""
        steps = self.steps_of(state["here"], state)
        left = where(wanted, self.as_steps(steps), self.step_kind(0))
        last = wanted & (state["here"] * self.stage + steps == state["n"])
        return self.finish_stage(self.undo(state, left, last), wanted)

    def finish_stage(self, state: State, wanted: Any) -> State:
        """The state after a stage was swept back, if one was."""
        if self.watch:
            stages = over(state["n"] + self.stage - 1, self.stage)
            state = watch_stage(state, wanted, stages)
        newest = state["newest"]
        slot = row(state["slot"], at_least(newest, 0))
        oldest = row(state["at"], slot) == state["here"]
        return state | {
            "end": where(wanted, state["here"], state["end"]),
            "newest": newest - (wanted & oldest),
            "fresh": state["fresh"] & ~wanted,
        }

    def steps_of(self, stage: Any, state: State) -> Any:
        """How many steps a stage has: the last one may be shorter."""
        return at_most(self.stage, state["n"] - stage * self.stage)

    def as_steps(self, number: Any) -> Any:
        """A number of steps of the type in which they are counted down."""
        return lax.convert_element_type(number, self.step_kind)

    def undo(self, state: State, left: Any, last: Any) -> State:
        """Sweep back the stage of `left` steps, keeping the outputs if it is the last.

        They are known only then: the last block is run when it is swept back.
        """
        compiled, operands = self.compiled, self.operands
        stage = self.settings.stage
        if self.settings.direct:
            direct = Tapeless(compiled, operands, thrift=self.settings.thrift)
            state = self.back(direct, state | {"left": left}, at_most=1)
            return self.capture(state, last)
        if not self.one_copy:
            state = state | {"left": left, "taped": jnp.int32(0)}
            state = self.go(Tape(compiled, operands), state, at_most=stage)
        state = self.back(ReverseLast(compiled, operands), state, at_most=stage)
        return self.capture(state, last)

    def go(self, going: Pass, state: State, at_most: int | None = None) -> State:
        """Go through the program, for so many steps at most as are known to be."""
        del at_most
        return emit(self.compiled, going, state)

    def back(self, going: Pass, state: State, at_most: int | None = None) -> State:
        """Go through the program backwards, and look at cotangents if that is asked."""
        going = WatchedPass(going, self.layout) if self.watch else going
        return self.go(going, state, at_most)

    # Snapshots -------------------------------------------------------------------

    def restore(self, state: State, asked: Any = True) -> State:
        """Load the newest snapshot, unless the registers are where they should be."""
        newest = at_least(state["newest"], 0)
        slot = row(state["slot"], newest)
        at = row(state["at"], slot)
        wanted = ~state["fresh"] if asked is True else ~state["fresh"] & asked
        if self.online:
            wanted = wanted & state["back"]

        here = where(wanted, at, state["here"])
        return self.snapshots.load(state, wanted, slot, at) | {
            "here": here,
            "fresh": state["fresh"] | wanted,
            "restores": state["restores"] + wanted,
        }

    def place(self, state: State, stage: Any, asked: Any = True) -> State:
        """Online, and the run goes on: keep what waits in a free slot, or forget it."""
        goes_on = ~state["back"]
        asked = goes_on if asked is True else goes_on & asked
        return place_waiting(state, stage, asked, at_once=self.at_once)

    def store(self, state: State, wanted: Any, asked: Any = True) -> State:
        """Store the registers as the newest snapshot, or for the stage that begins."""
        index = state["newest"] + 1
        begins = wanted
        if self.online:
            goes_on = ~state["back"]
            begins = wanted | (goes_on if asked is True else goes_on & asked)
        state = self.snapshots.save(state, begins, row(state["slot"], index))
        return state | {
            "newest": state["newest"] + wanted,
            "fresh": state["fresh"] | wanted,
            "stores": state["stores"] + wanted,
            "peak": at_least(state["peak"], wanted * (index + 1)),
        }

    # Outputs ---------------------------------------------------------------------

    def capture(self, state: State, wanted: Any) -> State:
        """Keep the outputs that live in registers, which the sweep back overwrites."""
        places = register_outs(self.compiled)
        if not places:
            return dict(state)
        keys = [("out", i) for i in places]
        return once(wanted, state, keys, lambda *_: [state[p] for p in places.values()])


@cached(64)
def cutting(snapshots: int, split: Split, numbers: Numbers) -> Callable[..., Any]:
    """`cut` in one kernel, traced once for all programs under the same plan."""
    return kernel(lambda given, asked: cut(given, asked, snapshots, split, numbers))

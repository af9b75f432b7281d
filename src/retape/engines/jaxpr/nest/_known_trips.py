"""The nest of loops for an accelerator: trip counts known, blocks run and chosen from.

Where a host enqueues the work of an accelerator, a loop whose end depends on a value
makes it wait for that value at every turn, and a conditional makes it wait, too
(XLA:GPU, `WhileThunk` and `ConditionalThunk`, read in November 2026). A loop that is
known to make T turns is enqueued at once. So this form of `nest/_resumable_nest` has
one waiting loop around each of the program's outermost loops, and each turn of it is a
*chunk*: the nest inside in loops of known trip count, each block run at every turn, and
what it makes kept only where it was the block's turn.

    host form                                  this form
    while pc in 3..5 and steps are left:       while pc in 3..5 and steps are left:
        while pc == 3 and ...: block 3             8 times:
        while pc == 4 and ...: block 4                 block 3 if pc == 3
        while pc == 5 and ...: block 5                 4 times: block 4 if pc == 4
                                                       block 5 if pc == 5

Whatever the number of turns, every state is right: a loop that has more of them to make
goes on in the next chunk, wherever it is, since control falls through to the block that
is next; and one that has fewer leaves the state as it is for the rest. So the numbers
are a matter of speed alone, `ChunkSizes`.

A block that must not be run when it is not its turn, for it has a loop of the user's
that may not end, talks to the host or waits for other devices, keeps its guard; so does
one that stands outside all loops and is dear.

`emit` writes either form: for a host each block and each loop of several has a guard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jax import lax

from retape.engines.jaxpr.codegen._allocate import extent, numbering
from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.ir._ir import Block, Item, Label, Loop
from retape.engines.jaxpr.nest._carried import Carried
from retape.engines.jaxpr.nest._chunk_sizes import ChunkSizes
from retape.engines.jaxpr.nest._counted_turns import counted_turns
from retape.engines.jaxpr.nest._resumable_nest import (
    LOOP,
    PLAIN,
    Guard,
    Pass,
    State,
    changed_keys,
    chosen_step,
    while_next,
)


def emit(
    compiled: Compiled,
    going: Pass,
    state: State,
    sizes: ChunkSizes | None = None,
    *,
    at_most: int | None = None,
    one_chunk: bool = False,
) -> State:
    """Emit the nest for one pass.

    Args:
        compiled: The program.
        going: What is done at each block.
        state: The state.
        sizes: How many turns each loop makes at a time, for an accelerator.
        at_most: No more steps than these are ever asked for, if that is known.
        one_chunk: Whether only so much is done as nobody waits for: at least a step, if
            there is one. Where there are several loops side by side all of it is done.
    """
    guard = LOOP if sizes is None else PLAIN
    if at_most == 1 and sizes is not None and sizes.is_branched:
        # One block of several, which are dear, or a stage would be longer.
        sizes = None
    one_chunk &= sum(isinstance(item, Loop) for item in compiled.items) == 1
    number = numbering(compiled.items)
    nest = _Nest(going, number, sizes, guard, at_most or 0, one_chunk)
    return nest.through(compiled.items, state, outside=True)


@dataclass(frozen=True, slots=True)
class _Nest:
    """The items of a program, for one pass."""

    going: Pass
    number: dict[Label, int]
    sizes: ChunkSizes | None
    """`None` if each item has a guard."""
    guard: Guard
    """Of a step that is run by a loop."""
    at_most: int
    one_chunk: bool

    def through(
        self, items: Sequence[Item], state: State, *, outside: bool = False
    ) -> State:
        """Items, one after the other."""
        for item in reversed(items) if self.going.backwards else items:
            if isinstance(item, Block):
                state = self.block(item, state, outside=outside)
            elif self.sizes is None:
                state = self.guarded(item, state)
            elif outside:
                state = self.outermost(item, state, self.sizes)
            else:
                state = self.turns(item, self.sizes.turns[id(item)], state)
        return state

    def block(self, block: Block, state: State, *, outside: bool) -> State:
        """A block, where it is its turn; or run whether it is, and chosen from."""
        label, going = block.label, self.going
        if self.is_chosen_from(label, outside=outside):
            return chosen_step(going, label, self.number[label], state)
        step = lambda inner: going.step(label, inner, self.guard)  # noqa: E731
        return self.while_it_lasts(block, step, state)

    def is_chosen_from(self, label: Label, *, outside: bool) -> bool:
        """Tell whether a block is run although it may not be its turn."""
        sizes = self.sizes
        free = sizes is not None and not sizes.keeps_guard(label, outside=outside)
        return free or self.going.passes_over(label)

    def guarded(self, loop: Loop, state: State) -> State:
        """A loop for a host, which tests at each turn whether to go on."""
        (first, *others) = loop.items
        if isinstance(first, Block) and not others:
            return self.block(first, state, outside=False)
        return self.while_it_lasts(loop, lambda s: self.through(loop.items, s), state)

    def outermost(self, loop: Loop, state: State, sizes: ChunkSizes) -> State:
        """Chunks of a loop, as long as the next step is one of its."""
        chunk = sizes.turns[id(loop)]
        if sizes.is_single and 0 < self.at_most <= chunk:
            # Each turn makes a step, unless the loop is left: then none is to make.
            return self.turns(loop, self.at_most, state)
        if self.one_chunk:
            return self.turns(loop, chunk, state)
        turns = lambda inner: self.turns(loop, chunk, inner)  # noqa: E731
        return self.while_it_lasts(loop, turns, state, together=True)

    def while_it_lasts(
        self,
        item: Item,
        inside: Callable[[State], State],
        state: State,
        *,
        together: bool = False,
    ) -> State:
        """Go on with `inside` while the next step is one of an item."""
        lo, hi = extent(item, self.number)
        keys = changed_keys(self.going, [item])
        return while_next(self.going, lo, hi, keys, inside, state, together=together)

    def turns(self, loop: Loop, count: int, state: State) -> State:
        """So many turns of a loop, one after the other."""
        if count == 1:
            return self.through(loop.items, state)
        (item, *others) = loop.items
        label = item.label if isinstance(item, Block) and not others else None
        if label is not None and self.is_chosen_from(label, outside=False):
            return counted_turns(self.going, label, self.number[label], count, state)
        changed = {k: state[k] for k in changed_keys(self.going, [loop])}
        carried = Carried(changed, together=True)

        def turn(carry: list[Any], _: None) -> tuple[list[Any], None]:
            after = self.through(loop.items, state | carried.state(carry))
            return carried.values(after), None

        found, _ = lax.scan(turn, carried.values(changed), length=count)
        return state | carried.state(found)

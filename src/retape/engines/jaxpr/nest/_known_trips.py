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
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import lax

from retape.engines.jaxpr.codegen._allocate import extent, numbering
from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.ir._ir import Block, Item, Loop
from retape.engines.jaxpr.nest._carried import Carried
from retape.engines.jaxpr.nest._chunk_sizes import ChunkSizes
from retape.engines.jaxpr.nest._counted_turns import counted_turns
from retape.engines.jaxpr.nest._resumable_nest import (
    OK,
    Pass,
    State,
    changed_keys,
    chosen_step,
    emit,
    while_next,
)


def emit_in_chunks(
    compiled: Compiled,
    going: Pass,
    state: State,
    sizes: ChunkSizes,
    *,
    at_most: int | None = None,
) -> State:
    """Emit the nest for one pass.

    Args:
        compiled: The program.
        going: What is done at each block.
        state: The state.
        sizes: How many turns each loop makes at a time.
        at_most: No more steps than these are ever asked for, if that is known.
    """
    if at_most == 1 and sizes.is_branched:
        # One block of several, which are dear, or a stage would be longer.
        held = emit(compiled, going, state | {OK: None})
        return {k: v for k, v in held.items() if k != OK}
    return _Nest(compiled, going, sizes, at_most).outermost(state)


def emit_chunk(
    compiled: Compiled, going: Pass, state: State, sizes: ChunkSizes
) -> State:
    """Emit as much of a pass as nobody waits for: at least a step, if there is one.

    Where a program has several loops side by side all of the pass is done.
    """
    return _Nest(compiled, going, sizes, None).once(state)


class _Nest:
    """The items of a program, for one pass."""

    def __init__(
        self, compiled: Compiled, going: Pass, sizes: ChunkSizes, at_most: int | None
    ) -> None:
        self.compiled = compiled
        self.going = going
        self.sizes = sizes
        self.at_most = at_most
        self.number = numbering(compiled.items)

    def outermost(self, state: State) -> State:
        for item in self.in_order(self.compiled.items):
            if isinstance(item, Block):
                state = self.block(item, state, outside=True)
            elif self.is_one_chunk(item):
                # Each turn makes a step, unless the loop is left: then none is to make.
                state = self.turns(item, self.at_most or 0, state)
            else:
                state = self.while_it_lasts(item, state)
        return state

    def is_one_chunk(self, loop: Loop) -> bool:
        """Whether all that is ever asked for at once is a chunk of this loop."""
        return self.sizes.is_single and (
            0 < (self.at_most or 0) <= self.sizes.turns[id(loop)]
        )

    def once(self, state: State) -> State:
        """A chunk of the only loop, and the blocks around it."""
        if sum(isinstance(item, Loop) for item in self.compiled.items) != 1:
            return self.outermost(state)
        for item in self.in_order(self.compiled.items):
            if isinstance(item, Block):
                state = self.block(item, state, outside=True)
            else:
                state = self.turns(item, self.sizes.turns[id(item)], state)
        return state

    def in_order(self, items: Sequence[Item]) -> Sequence[Item]:
        return list(reversed(items)) if self.going.backwards else items

    def while_it_lasts(self, loop: Loop, state: State) -> State:
        """Chunks of a loop, as long as the next step is one of its."""
        chunk = self.sizes.turns[id(loop)]
        once = lambda inner: self.turns(loop, chunk, inner)  # noqa: E731
        keys = changed_keys(self.going, [loop])
        lo, hi = extent(loop, self.number)
        return while_next(self.going, lo, hi, keys, once, state, together=True)

    def turns(self, loop: Loop, count: int, state: State) -> State:
        """So many turns of a loop, one after the other."""
        if count == 1:
            return self.body(loop, state)
        (item, *others) = loop.items
        if isinstance(item, Block) and not others and self.counts(item):
            here = self.number[item.label]
            return counted_turns(self.going, item.label, here, count, state)
        changed = {k: state[k] for k in changed_keys(self.going, [loop])}
        carried = Carried(changed, together=True)

        def turn(carry: list[Any], _: None) -> tuple[list[Any], None]:
            return carried.values(self.body(loop, state | carried.state(carry))), None

        found, _ = lax.scan(turn, carried.values(changed), length=count)
        return state | carried.state(found)

    def counts(self, block: Block) -> bool:
        """Tell whether a loop of this block alone need carry no number of ours."""
        guarded = self.sizes.keeps_guard(block.label, self.going, outside=False)
        return not (guarded or self.going.passes_over(block.label))

    def body(self, loop: Loop, state: State) -> State:
        for item in self.in_order(loop.items):
            if isinstance(item, Block):
                state = self.block(item, state, outside=False)
            else:
                state = self.turns(item, self.sizes.turns[id(item)], state)
        return state

    def block(self, block: Block, state: State, *, outside: bool) -> State:
        label, here = block.label, self.number[block.label]
        step = lambda inner: self.going.step(label, inner | {OK: None})  # noqa: E731
        if self.sizes.keeps_guard(label, self.going, outside=outside):
            keys = changed_keys(self.going, [block])
            return while_next(self.going, here, here, keys, step, state)
        return chosen_step(self.going, label, here, state)

"""Running steps inside one XLA program: the program's loops, made resumable.

A run that was interrupted goes on in the middle of a nest of loops. Jumping there
through a `switch` over all blocks would pass every register through every branch,
and XLA copies what passes through a branch. Instead the nest itself is emitted, with
a guard on every block and loop (compare "Duff's device"):

    while pc in outer loop and steps are left:
        while pc == 3 and steps are left:  block 3
        while pc == 4 and steps are left:  block 4      <- a hot inner loop stays native
        while pc == 5 and steps are left:  block 5

Wherever the program counter points to, control falls through to that block. A
`while` keeps in place what its body does not change, so a block costs nothing for
registers that it does not touch; each block is compiled once, however deep it stands.
The same nest, read backwards, undoes a stage: there the guard looks at the recorded
program counters instead.

State is a dictionary. Keys are `Place`s (registers), `("d", place)` (cotangents),
`("pool", i)` (tape) and names of counters; a loop carries just the keys that change
inside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from jax import lax

from retape.engines.jaxpr.codegen._allocate import extent, numbering
from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.ir._ir import Block, Item, Label, blocks_of

State = dict[Any, Any]


class Pass(Protocol):
    """One way of going through the blocks: what is done at each, and when."""

    backwards: bool

    def changes(self, label: Label) -> set[Any]:
        """Keys of the state that running this block changes."""
        ...

    def guard(self, lo: int, hi: int, state: State) -> Any:
        """Tell whether the next step to be done is one of blocks `lo..hi`."""
        ...

    def step(self, label: Label, state: State) -> State:
        """Do one step of this block."""
        ...


def emit(compiled: Compiled, going: Pass, state: State) -> State:
    """Emit the nest for one pass."""
    return _emit_item(compiled.items, going, numbering(compiled.items), state)


def _emit_item(
    items: Sequence[Item], going: Pass, number: dict[Label, int], state: State
) -> State:
    for item in reversed(items) if going.backwards else items:
        state = _guarded(item, going, number, state)
    return state


def _guarded(item: Item, going: Pass, number: dict[Label, int], state: State) -> State:
    lo, hi = extent(item, number)
    changed = set().union(*(going.changes(b.label) for b in blocks_of([item])))
    keys = sorted(changed, key=str)

    def again(carry: Sequence[Any]) -> Any:
        return going.guard(lo, hi, state | dict(zip(keys, carry, strict=True)))

    def body(carry: Sequence[Any]) -> list[Any]:
        inner = state | dict(zip(keys, carry, strict=True))
        if lo == hi:
            inner = going.step(next(blocks_of([item])).label, inner)
        else:
            assert not isinstance(item, Block)
            inner = _emit_item(item.items, going, number, inner)
        return [inner[k] for k in keys]

    after = lax.while_loop(again, body, [state[k] for k in keys])
    return state | dict(zip(keys, after, strict=True))


def pc_in(lo: int, hi: int, pc: Any) -> Any:
    return pc == lo if lo == hi else (pc >= lo) & (pc <= hi)

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

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from jax import lax

from retape.engines.jaxpr.codegen._allocate import WRITTEN
from retape.engines.jaxpr.ir._ir import Item, Label, blocks_of
from retape.engines.jaxpr.jaxprs._scalar_ops import chosen
from retape.engines.jaxpr.nest._carried import Carried, State

_CHOSEN_HERE = frozenset({"pc", "left", "taped", "tops", WRITTEN})
"""What `chosen_step` chooses. All else `step` chooses itself, row by row."""


class Guard(NamedTuple):
    """How a step is run: if it is next, by a loop around it, or in any case.

    Attributes:
        ok: Whether it is next, of a step that is run in any case: if it is false, what
            the step makes is not kept. `None` where a loop decides.
        branches: Whether its code may branch; an accelerator's host would wait.
    """

    ok: Any = None
    branches: bool = True

    def truth(self, count: Any) -> Any:
        """A truth that the compiler cannot know, for branches; `None` to have none.

        Args:
            count: A number that is not negative.
        """
        return count >= 0 if self.branches else None


LOOP = Guard()
"""A host's loop decides."""
PLAIN = Guard(branches=False)
"""An accelerator's does, or nothing has to be decided."""


class Ahead(NamedTuple):
    """What is known of the steps that come next.

    Attributes:
        most: How many of one block, at most as many as were asked about, if it is not
            left before.
        nexts: The block that is next after each of them, if that is known beforehand.
    """

    most: Any
    nexts: Any = None


class Pass(Protocol):
    """One way of going through the blocks: what is done at each, and when."""

    backwards: bool

    def changes(self, label: Label) -> set[Any]:
        """Keys of the state that running this block changes."""
        ...

    def passes_over(self, label: Label) -> bool:
        """Tell whether nothing of the user's code is run at this block."""
        del label
        return False

    def guard(self, lo: int, hi: int, state: State) -> Any:
        """Tell whether the next step to be done is one of blocks `lo..hi`."""
        ...

    def step(self, label: Label, state: State, guard: Guard) -> State:
        """Do one step of this block."""
        ...

    def paces(self, label: Label) -> dict[Any, Any]:
        """Keys that each step of this block changes by the same, and by how much."""
        ...

    def ahead(self, label: Label, here: int, count: int, state: State) -> Ahead:
        """How many steps of this block come next, `count` at most, as far as known."""
        ...

    def settled(self, label: Label, state: State, made: Any) -> State:
        """The state behind so many steps, of which it has the rest: their record."""
        del label, made
        return state


def chosen_step(going: Pass, label: Label, here: int, state: State) -> State:
    """Run a block whether it is next or not, and keep what it makes if it is."""
    ok = going.guard(here, here, state)
    after = going.step(label, state, Guard(ok, branches=False))
    found = dict(state)
    for key in going.changes(label):
        new = after[key]
        found[key] = chosen_like(ok, new, state[key]) if key in _CHOSEN_HERE else new
    return found


def chosen_like(ok: Any, new: Any, old: Any) -> Any:
    """The new value if `ok`, of the old one's type."""
    return chosen(ok, lax.convert_element_type(new, old.dtype), old)


def changed_keys(going: Pass, items: Sequence[Item]) -> list[Any]:
    """Keys of the state that a pass changes in these items, in order."""
    changed = (going.changes(b.label) for b in blocks_of(list(items)))
    return sorted(set().union(*changed), key=str)


def while_next(
    going: Pass,
    lo: int,
    hi: int,
    keys: Sequence[Any],
    inside: Callable[[State], State],
    state: State,
    *,
    together: bool = False,
) -> State:
    """Go on with `inside` while the next step to be done is one of blocks `lo..hi`.

    Args:
        going: The pass.
        lo: The first of the blocks.
        hi: The last.
        keys: What of the state changes in them.
        inside: What is done at each turn.
        state: The state.
        together: Whether integers are carried in one vector.
    """
    changed = {k: state[k] for k in keys}
    carried = Carried(changed, together=together)

    def again(carry: Sequence[Any]) -> Any:
        return going.guard(lo, hi, state | carried.state(carry))

    def body(carry: Sequence[Any]) -> list[Any]:
        return carried.values(inside(state | carried.state(carry)))

    after = lax.while_loop(again, body, carried.values(changed))
    return state | carried.state(after)


def pc_in(lo: int, hi: int, pc: Any) -> Any:
    return pc == lo if lo == hi else (pc >= lo) & (pc <= hi)

"""Loops under `vmap`, whose lanes end each at its own time.

Such a loop runs as long as any of its lanes goes on, and lets the others stand:

    v = select(going, body(v), v)

The derivative of what stands is that of `v`, but the body is differentiated for it,
too, and its cotangent there is zero times the derivative of a step beyond the end:
NaN if that is infinite. Two ways keep it out, both known as the double `where`:

    u = select(going, v, stop_gradient(v))      what comes back to `v` is dropped
    u = select(going, v, w)                     a step beyond the end is not taken

The first costs nothing, and does if nothing but the lanes themselves has a derivative.
What is the same for all lanes gets the sum of theirs, in which NaN can no longer be
told from the rest. So there the second is taken: `w` is what the lane's last step
started from, once more as many registers. A lane that never goes on takes another's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import lax

from retape.engines.jaxpr.ir._builder import LoopShape
from retape.engines.jaxpr.ir._ir import Atom, Var

Emit = Callable[[Callable[..., Any], Sequence[Any]], list[Any]]
"""Writes code of our own, a function of arrays; returns its results."""


@dataclass(frozen=True, slots=True)
class While:
    """A `while`: what it carries, and what writes its test and its body."""

    carry: Sequence[Var]
    init: Sequence[Any]
    test: Callable[[Sequence[Any]], Atom]
    body: Callable[[Sequence[Any]], list[Any]]

    def turn(self) -> tuple[list[Any], Atom]:
        """Write a turn of a loop that is not mapped."""
        outs = self.body(self.carry)
        return outs, self.test(outs)


def standing(loop: While, emit: Emit, *, gated: bool = False) -> LoopShape:
    """It runs as long as any lane does; the others stand.

    The lanes that go on are part of the carry, the program counter never is. No
    derivative comes back from the body in lanes that stand if it is `gated`.
    """
    first = loop.test(loop.init)
    going = Var(first.aval)

    def turn() -> tuple[list[Any], Atom]:
        given = [
            emit(_through_gate, [going, v])[0] if gated and v.active else v
            for v in loop.carry
        ]
        outs = _stood(loop, emit, going, loop.body(given))
        again = loop.test(outs)
        return [*outs, again], emit(_any_of, [again])[0]

    (more,) = emit(_any_of, [first])
    return LoopShape([*loop.carry, going], [*loop.init, first], more, turn)


def harmless(loop: While, emit: Emit) -> LoopShape:
    """The same; lanes that stand take their last step again, for nothing."""
    first = loop.test(loop.init)
    going, before = Var(first.aval), [Var(v.aval) for v in loop.carry]
    start = [emit(_of_one_that_goes, [first, v])[0] for v in loop.init]

    def turn() -> tuple[list[Any], Atom]:
        pairs = zip(loop.carry, before, strict=True)
        chosen = [emit(_started_from, [going, *p]) for p in pairs]
        outs = _stood(loop, emit, going, loop.body([c[0] for c in chosen]))
        again = loop.test(outs)
        return [*outs, again, *(c[1] for c in chosen)], emit(_any_of, [again])[0]

    (more,) = emit(_any_of, [first])
    carry, init = [*loop.carry, going, *before], [*loop.init, first, *start]
    return LoopShape(carry, init, more, turn)


def _stood(loop: While, emit: Emit, going: Var, new: Sequence[Any]) -> list[Any]:
    """The new values in the lanes that go on, the old ones in the others."""
    pairs = zip(new, loop.carry, strict=True)
    return [emit(_where, [going, *pair])[0] for pair in pairs]


def _where(lanes: Any, new: Any, old: Any) -> list[Any]:
    """New values in the lanes that go on."""
    wide = lanes.reshape(lanes.shape + (1,) * (new.ndim - lanes.ndim))
    return [jnp.where(wide, new, old)]


def _any_of(lanes: Any) -> list[Any]:
    """Tell whether any lane goes on."""
    return [jnp.any(lanes)]


def _through_gate(lanes: Any, value: Any) -> list[Any]:
    """A value from which no derivative comes back in lanes that stand."""
    return _where(lanes, value, lax.stop_gradient(value))


def _started_from(lanes: Any, value: Any, before: Any) -> list[Any]:
    """The value that a step starts from, and the same without a derivative."""
    (chosen,) = _where(lanes, value, before)
    return [chosen, lax.stop_gradient(chosen)]


def _of_one_that_goes(lanes: Any, value: Any) -> list[Any]:
    """In lanes that never go on, what the first of those that do starts from."""
    rows = value.reshape(-1, *value.shape[lanes.ndim :])
    one = jnp.broadcast_to(rows[jnp.argmax(lanes.reshape(-1))], value.shape)
    (chosen,) = _where(lanes, value, one)
    return [lax.stop_gradient(chosen)]

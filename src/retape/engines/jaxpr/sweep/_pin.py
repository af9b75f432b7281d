"""Data dependences that keep XLA from hoisting work out of its guard.

Every block of a sweep is guarded by a loop (`nest/_resumable_nest`), and whether it
runs is known when the program runs. XLA's CPU compiler is right to assume that a loop
runs; here that assumption costs time and memory, and between devices it can hang. Four
things it does with code in a guard, all seen on jaxlib 0.10.2, and what stops them:

1. *Loop-invariant code motion.* What follows from values alone that a loop leaves as
   they are is moved in front of it, and then runs in every turn of the sweep. A sum of
   1000 saved rows of 500 numbers took 328 ms, and takes 7 ms with the rows tied to the
   running of their block. `pinned_state`: an `optimization_barrier` takes them together
   with a count that each turn of the loop changes, so that they are not invariant.
2. *The same between devices.* The cotangent of a value that is held once is added up
   over the devices of a mesh by a `psum`. Moved in front of the guard, it waits for
   devices that make another number of turns, and never ends. `ordered`: it is tied to a
   count in the same way, only where the code names a mesh axis.
3. *Free order.* Within a block, a cotangent that does not follow from a stream (the
   loss is linear) may be made before the stream was read for the last time. Where the
   two share a place (`codegen/_share_cotangents`), both are then there at once, and a
   copy of either: 7.0 MB for 3.0 MB. `after_results`: the cotangent is chosen by truths
   that follow from the block's results, and that the compiler cannot know.
4. *Barriers go.* The pass `cse_barrier_expander` removes them, and equal code is merged
   behind it. So a barrier holds against 1 and 2, which come before, and does not keep a
   recomputation apart from the first run: `calls/_rerun` needs a branch for that.

Not here: branches against fusion of single numbers (`xla/_scalar_guards`), and branches
that free what they make (`xla/_sink_weight_gradients`). The tests of the compiled text
(`tests/engines/jaxpr/sweep/test_compiled_text.py`, `codegen/test_share_cotangents.py`)
fail if a later release does one of these in spite of it; where one passes with a
function here replaced by the identity, that function can go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend import core

from retape.engines.jaxpr.codegen._allocate import Location
from retape.engines.jaxpr.codegen._block_function import Code
from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.jaxprs._avals import FLOATS, spread, varying, zeros_as
from retape.engines.jaxpr.jaxprs._jax_internals import names_an_axis
from retape.engines.jaxpr.jaxprs._scalar_ops import where as select
from retape.engines.jaxpr.nest._resumable_nest import State


def pinned_state(
    compiled: Compiled,
    code: Code,
    state: State,
    changed: set[Location],
    by: str = "left",
) -> State:
    """The state with what the block reads and leaves alone tied to its running.

    Number 1 above. In a block that runs once that goes for resident values, too; in a
    loop they are better worked on before it.
    """
    where = compiled.layout.where
    read = {where[v] for v in (*code.ins, *code.counters())}
    kinds = ("register", "resident") if code.once else ("register",)
    return tied_state(state, {p for p in read if p.kind in kinds} - changed, by)


def tied_state(state: State, keys: set[Location], by: str) -> State:
    """The state with these values tied to one that each turn of a loop changes."""
    if isinstance(state[by], np.generic):
        return state  # no loop changes it
    places = sorted(keys)
    values, count = tie([state[k] for k in places], state[by])
    return state | dict(zip(places, values, strict=True)) | {by: count}


def tie(values: Sequence[Any], count: Any) -> tuple[list[Any], Any]:
    """Values that are not there before a count is, and that count."""
    found = list(values)
    # A barrier gives all that goes through it one type, so each type has its own.
    spreads = [varying(jax.typeof(v)) for v in values]
    for axes in sorted(set(spreads), key=sorted):
        alike = [i for i, own in enumerate(spreads) if own == axes]
        first, *held = lax.optimization_barrier(
            [spread(count, axes), *(found[i] for i in alike)]
        )
        for i, value in zip(alike, held, strict=True):
            found[i] = value
        count = count if axes else first
    return found, count


def ordered(
    jaxpr: core.ClosedJaxpr, cotangents: Sequence[Any], count: Any
) -> Sequence[Any]:
    """Cotangents for code in which devices may wait for one another.

    Number 2 above: a sum over devices must not leave the guard of its block.
    """
    if not any(map(names_an_axis, jaxpr.effects)):
        return cotangents
    return tie(cotangents, count)[0]


def after_results(cotangent: Any, results: Sequence[Any]) -> Any:
    """The cotangent, not to be made before the results of the same block.

    Number 3 above. Each truth says that the lowest bit of a result's first number is
    less than two. That is always so, but XLA keeps no ranges of bits, so it has to wait
    for the result.
    """
    for result in results:
        fits = varying(jax.typeof(result)) <= varying(jax.typeof(cotangent))
        if not fits or not result.size or str(result.dtype) not in FLOATS:
            continue
        flat = lax.reshape(result, (result.size,))
        number = lax.squeeze(lax.slice(flat, (0,), (1,)), (0,))
        bits = lax.bitcast_convert_type(number, f"uint{8 * result.dtype.itemsize}")
        one, two = (np.asarray(n, bits.dtype) for n in (1, 2))
        truth = lax.lt(lax.bitwise_and(bits, one), two)
        truth = spread(truth, varying(jax.typeof(cotangent)))
        cotangent = select(truth, cotangent, zeros_as(cotangent))
    return cotangent

"""Turns of a loop of one block, with nothing carried that follows from their number.

Each number that a loop carries is a kernel of its own at every turn of it on a GPU: it
reads one number and writes it. Most of what steers a sweep changes by the same in each
step (`left`, `taped`, `tops`, the user's own counters), and so does not have to be
carried at all: it follows from the number of the turn, and is settled once behind them.

    three carried    turn: x = step(x) if ok;  left -= ok;  i += ok;  pc = ...     9
    by the turn k    turn: x = step(x) if k < most                                 4
                     behind: left -= made;  i += made;  pc = next[made - 1]

(Kernels a turn, a step of four, XLA:GPU for an H100, November 2026.) How many steps are
made, `most`, is known before the first where the next block follows from such numbers,
too, as in a `scan`. Elsewhere it and the steps made are one vector, which is carried.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax
from jax.extend import core

from retape.engines.jaxpr.analysis._opaque_primitives import implementation
from retape.engines.jaxpr.codegen._allocate import Layout, Location
from retape.engines.jaxpr.codegen._block_function import Code
from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.ir._ir import Label
from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.jaxprs._evaluate import dce_inputs, evaluate
from retape.engines.jaxpr.jaxprs._primitive_table import Kernel, callee, traits
from retape.engines.jaxpr.jaxprs._rewrite import rewrite
from retape.engines.jaxpr.jaxprs._row_ops import row
from retape.engines.jaxpr.jaxprs._scalar_ops import at_least, chosen, where
from retape.engines.jaxpr.nest._carried import Carried
from retape.engines.jaxpr.nest._resumable_nest import Guard, Pass, State


class Pace(NamedTuple):
    """What of a block's results follows from how often it was run.

    Attributes:
        counters: Registers that each run changes by the same number.
        next: From some of the block's inputs to the block that is next, where these
            are counters, or numbers that it leaves as they are; else `None`.
        reads: Which of the inputs.
    """

    counters: dict[Location, int]
    next: core.ClosedJaxpr | None
    reads: tuple[int, ...]


@cached(256)
def pace_of(compiled: Compiled, label: Label) -> Pace:
    """Read a block's code."""
    code, layout = compiled.code[label], compiled.layout
    counters = _changed_by_a_number(code, layout)
    changed = {layout.where[v] for v in code.outs} - counters.keys()
    used = [False] * len(code.jaxpr.out_avals)
    used[-1] = True
    following, needed = dce_inputs(code.jaxpr, used)
    reads = tuple(i for i, need in enumerate(needed) if need)
    settled = all(
        i < len(code.ins)
        and code.ins[i].aval.shape == ()
        and layout.where[code.ins[i]] not in changed
        for i in reads
    )
    return Pace(counters, _in_lanes(following) if settled else None, reads)


def _in_lanes(jaxpr: core.ClosedJaxpr) -> core.ClosedJaxpr | None:
    """A program that answers for many steps at once, one in each lane of a `vmap`.

    Packages' own primitives are seen through first: the rule of `vmap` that came with
    one may mix lanes, which here are steps and not runs (Equinox's `unvmap_any` says in
    every lane whether any of them goes on). So may the rule of `jax.custom_batching`.

    Returns:
        `None` where an operation may mix lanes, or must not be run for a step that is
        never made: it may not end, or calls the host.
    """
    opened = rewrite(
        jaxpr,
        lambda eqn: implementation(eqn) is not None,
        lambda eqn, ins: evaluate(_opened(eqn), ins),
    )
    return opened if _keeps_lanes_apart(opened) else None


def _opened(eqn: core.JaxprEqn) -> core.ClosedJaxpr:
    body = implementation(eqn)
    assert body is not None
    return body


def _keeps_lanes_apart(jaxpr: core.ClosedJaxpr) -> bool:
    """Tell whether all of it is JAX's own arithmetic, in plain calls at most."""
    bodies = [(eqn, callee(eqn)) for eqn in jaxpr.eqns]
    return all(
        traits(eqn).kernel not in (Kernel.NEVER, Kernel.BODY)
        if body is None
        else _keeps_lanes_apart(body)
        for eqn, body in bodies
    )


def _changed_by_a_number(code: Code, layout: Layout) -> dict[Location, int]:
    jaxpr = code.jaxpr.jaxpr
    makers = {v: e for e in jaxpr.eqns for v in e.outvars}
    places = {
        v: layout.where[i]
        for v, i in zip(jaxpr.invars[: len(code.ins)], code.ins, strict=True)
    }
    found: dict[Location, int] = {}
    for var, out in zip(code.outs, jaxpr.outvars, strict=False):
        eqn = None if isinstance(out, core.Literal) else makers.get(out)
        aval: Any = out.aval
        if eqn is None or eqn.primitive.name != "add" or aval.shape != ():
            continue
        fixed = [a for a in eqn.invars if isinstance(a, core.Literal)]
        moving = [a for a in eqn.invars if not isinstance(a, core.Literal)]
        whole = np.issubdtype(aval.dtype, np.integer)
        if whole and len(fixed) == 1 and places.get(moving[0]) == layout.where[var]:
            found[layout.where[var]] = int(fixed[0].val)
    return found


def counted_turns(
    going: Pass, label: Label, here: int, count: int, state: State
) -> State:
    """Run a block `count` times, and keep what it makes as long as it is next.

    Args:
        going: What is done at the block.
        label: The block.
        here: Its number.
        count: How many turns.
        state: The state.
    """
    ahead = going.ahead(label, here, count, state)
    paces = going.paces(label)
    keys = sorted(going.changes(label) - paces.keys() - _SETTLED, key=str)
    moves = "pc" in going.changes(label) and ahead.nexts is None
    held = {k: state[k] for k in paces} | {_STEPS: ahead.most}
    carried = Carried(held, together=True)
    # A loop is handed each value that it reads by a kernel, if that was just made.
    before = carried.values(held)
    fixed = {k: v for k, v in state.items() if k not in _SETTLED}

    def turn(k: Any, carry: tuple[Any, list[Any]]) -> tuple[Any, list[Any]]:
        steered, values = carry
        first = carried.state(before)
        most = first.pop(_STEPS)
        # The next block, and how many steps were made.
        ok = k < (where(steered[0] == here, steered[1], 0) if moves else most)
        now = fixed | dict(zip(keys, values, strict=True)) | {"pc": np.int32(here)}
        now |= {key: after_steps(first[key], by, k) for key, by in paces.items()}
        after = going.step(label, now, Guard(ok, branches=False))
        if moves:
            new = lax.select(after["pc"] == here, steered[1], k + np.int32(1))
            steered = chosen(
                ok, lax.concatenate([after["pc"][None], new[None]], 0), steered
            )
        return steered, [after[key] for key in keys]

    begun = lax.concatenate([state["pc"][None], ahead.most[None]], 0) if moves else ()
    given = begun, [state[k] for k in keys]
    steered, values = lax.fori_loop(np.int32(0), np.int32(count), turn, given)
    made = ahead.most
    after = state | dict(zip(keys, values, strict=True))
    if moves:
        made = steered[1]
        after["pc"] = steered[0]
    elif ahead.nexts is not None:
        pc = row(ahead.nexts, at_least(made - 1, 0))
        after["pc"] = where(made > 0, pc, state["pc"])
    after |= {key: after_steps(state[key], by, made) for key, by in paces.items()}
    return going.settled(label, after, made)


_SETTLED = frozenset({"pc", "trace"})
"""What is known once the number of turns is."""
_STEPS = "most"


def after_steps(value: Any, by: Any, steps: Any) -> Any:
    """A number, or several, after so many steps that each add `by`."""
    kind = value.dtype
    steps = lax.convert_element_type(steps, kind)
    if np.ndim(by):
        steps = lax.broadcast_in_dim(steps, np.shape(by), ())
    return value + steps * lax.convert_element_type(by, kind)


def until_left(
    pace: Pace, given: list[Any], changed: list[int], here: int, count: int
) -> tuple[Any, Any]:
    """After how many turns another block is next, `count` at most; and which is, when.

    Args:
        pace: The block's; it says what follows from the number of turns.
        given: The values that `pace.next` reads.
        changed: By how much each of them changes in a turn.
        here: The block's number.
        count: How many turns.
    """
    assert pace.next is not None
    following = core.jaxpr_as_fun(pace.next)

    def after(k: Any) -> Any:
        return following(
            *(after_steps(v, by, k) for v, by in zip(given, changed, strict=True))
        )[0]

    order = lax.iota(np.int32, count)
    nexts = jax.vmap(after)(order)
    ends = where(nexts == np.int32(here), np.int32(count), order + np.int32(1))
    return lax.reduce_min(ends, (0,)), nexts

"""A whole sweep: one loop of turns in either form, and that as a jaxpr."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax import lax
from jax.extend import core

from retape.engines.jaxpr.analysis._activity import propagate, wide
from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.control._settings import INT, Settings
from retape.engines.jaxpr.jaxprs._avals import struct
from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.jaxprs._evaluate import vjp_by, which
from retape.engines.jaxpr.jaxprs._scalar_ops import own_types
from retape.engines.jaxpr.nest._carried import Carried
from retape.engines.jaxpr.nest._resumable_nest import State
from retape.engines.jaxpr.sweep._device_sweep import DeviceSweep
from retape.engines.jaxpr.sweep._equal_parts import equal_parts, sweep_equal_parts
from retape.engines.jaxpr.sweep._last_block import is_single_block, sweep_single_block
from retape.engines.jaxpr.sweep._state import (
    COUNTED,
    SweepCounts,
    initial,
    output_of,
    register_outs,
)
from retape.engines.jaxpr.sweep._sweep import Sweep
from retape.engines.jaxpr.sweep._watch import FIRST, NORMS, begin_watch
from retape.engines.jaxpr.xla._single_kernel import in_one_kernel


def sweep(
    compiled: Compiled,
    settings: Settings,
    operands: Sequence[Any],
    cotangents: Sequence[Any],
    *,
    watch: bool = False,
    counted: bool = True,
) -> tuple[list[Any], list[Any], SweepCounts]:
    """The program's outputs, the cotangents of its active operands, and the counts.

    Args:
        compiled: The program.
        settings: What the plan fixed.
        operands: Inputs, then constants.
        cotangents: Those of the active outputs, in order.
        watch: Whether to write down how large cotangents are on the way.
        counted: Whether anybody asks for the counts; they are not to be read if not.
    """
    n = len(compiled.program.outs)

    def turns(operands: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        state = initial(compiled, settings, cotangents)
        state |= begin_watch() if watch else {}
        form = DeviceSweep if settings.device else Sweep
        going = form(compiled, settings, operands, watch=watch)
        state = going.begin(state)
        carried = going.carried = Carried(
            state,
            together=settings.device,
            without=() if counted else COUNTED,
        )

        def unfinished(carry: list[Any]) -> Any:
            # Where a loop goes on by one value alone XLA looks for a counter, and
            # copies all that the next value follows from, here the whole turn, several
            # times: a tenth of the compile time. It does not where there are two.
            now = carried.state(carry)
            return (now["end"] > 0) & (now["n"] >= 0)

        def turn(carry: list[Any]) -> list[Any]:
            return carried.values(going.turn(carried.state(carry)))

        carry = carried.values(state)
        if going.turns is None:
            carry = lax.while_loop(unfinished, turn, carry)
        else:
            carry, _ = lax.scan(lambda c, _: (turn(c), None), carry, length=going.turns)
        return _results(compiled, operands, carried.state(carry))

    def whole(operands: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        if not watch and is_single_block(compiled, settings):
            return sweep_single_block(compiled, operands, cotangents)
        if not watch and (parts := equal_parts(compiled, settings)):
            return sweep_equal_parts(compiled, parts, operands, cotangents)
        return turns(operands, cotangents)

    # Step counts are 64-bit whatever the user's setting: 2**31 steps are an hour's
    # work. All code from here on gives its types explicitly.
    with own_types():
        made = in_one_kernel(whole, list(operands), list(cotangents))
    fields = len(SweepCounts._fields) - (0 if watch else 2)
    return made[:n], made[n:-fields], SweepCounts(*made[-fields:])


def _results(compiled: Compiled, operands: Sequence[Any], state: State) -> list[Any]:
    """Outputs, cotangents and counts, one after the other.

    Args:
        compiled: The program.
        operands: Inputs, then constants.
        state: That after the last turn.
    """
    outs = [
        _out(compiled, i, operands, state) for i in range(len(compiled.program.outs))
    ]
    layout = compiled.layout
    places = [p for p in layout.places("operand") if p in layout.active]
    counts = SweepCounts(
        lax.convert_element_type(state["n"], INT),
        state["advances"],
        state["stores"],
        state["restores"],
        state["peak"],
        state.get(NORMS),
        state.get(FIRST),
    )
    given = [each for each in counts if each is not None]
    return [*outs, *(state["d", p] for p in places), *given]


def _out(compiled: Compiled, i: int, operands: Sequence[Any], state: State) -> Any:
    """An output's value after the run."""
    if i in register_outs(compiled):
        return state["out", i]
    return output_of(compiled, compiled.program.outs[i], operands, state)


def traced_sweep(
    jaxpr: core.ClosedJaxpr,
    active: Sequence[bool],
    compiled: Compiled,
    settings: Settings,
) -> core.ClosedJaxpr:
    """The program `(x..., dy...) -> (y..., dx...)`: values and cotangents at once.

    `dy` has one entry per active output and `dx` one per active input.
    """
    if settings.plain:
        return _plain_program(jaxpr, tuple(active))
    n = len(jaxpr.in_avals)

    def run(*values: Any) -> list[Any]:
        operands = [*values[:n], *compiled.constants]
        outs, cotangents, _ = sweep(
            compiled, settings, operands, values[n:], counted=False
        )
        return [*outs, *cotangents]

    wanted = propagate(jaxpr, tuple(active))
    seeds = [struct(v) for v, a in zip(jaxpr.out_avals, wanted, strict=True) if a]
    with wide(jaxpr):
        return jax.make_jaxpr(run)(*map(struct, jaxpr.in_avals), *seeds)


@cached(64)
def _plain_program(
    jaxpr: core.ClosedJaxpr, active: tuple[bool, ...]
) -> core.ClosedJaxpr:
    """The same by JAX's own reverse mode.

    Raises:
        ValueError: If it has none for this program.
    """
    n = len(jaxpr.in_avals)
    chosen = which(active)
    moved = propagate(jaxpr, active)

    def run(*values: Any) -> list[Any]:
        wanted = which(moved)
        outs, pull = vjp_by(core.jaxpr_as_fun(jaxpr), values[:n], chosen, wanted)
        return [*outs, *pull(list(values[n:]))]

    seeds = [struct(v) for v, a in zip(jaxpr.out_avals, moved, strict=True) if a]
    with wide(jaxpr):
        return jax.make_jaxpr(run)(*map(struct, jaxpr.in_avals), *seeds)


def has_plain(jaxpr: core.ClosedJaxpr, active: tuple[bool, ...]) -> bool:
    """Whether JAX's own reverse mode can differentiate a program."""
    try:
        _plain_program(jaxpr, active)
    except ValueError:  # a loop of unknown length
        return False
    return True

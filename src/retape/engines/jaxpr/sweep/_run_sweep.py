"""A sweep from its first turn to its results: one loop of turns, in either form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import lax

from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.control._settings import Settings
from retape.engines.jaxpr.jaxprs._scalar_ops import own_types
from retape.engines.jaxpr.sweep._device_sweep import DeviceSweep
from retape.engines.jaxpr.sweep._state import SweepCounts, initial
from retape.engines.jaxpr.sweep._sweep import Sweep
from retape.engines.jaxpr.sweep._watch import begin_watch
from retape.engines.jaxpr.xla._single_kernel import in_one_kernel


def sweep(
    compiled: Compiled,
    settings: Settings,
    operands: Sequence[Any],
    cotangents: Sequence[Any],
    *,
    watch: bool = False,
) -> tuple[list[Any], list[Any], SweepCounts]:
    """The program's outputs, the cotangents of its active operands, and the counts.

    Args:
        compiled: The program.
        settings: What the plan fixed.
        operands: Inputs, then constants.
        cotangents: Those of the active outputs, in order.
        watch: Whether to write down how large cotangents are on the way.
    """
    n = len(compiled.program.outs)

    def whole(operands: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        state = initial(compiled, settings, cotangents)
        state |= begin_watch() if watch else {}
        form = DeviceSweep if settings.device else Sweep
        going = form(compiled, settings, operands, watch=watch)
        state = going.begin(state)
        keys = sorted(state, key=str)

        def unfinished(carry: list[Any]) -> Any:
            # Where a loop goes on by one value alone XLA looks for a counter, and
            # copies all that the next value follows from, here the whole turn, several
            # times: a tenth of the compile time. It does not where there are two.
            return (carry[keys.index("end")] > 0) & (carry[keys.index("n")] >= 0)

        def turn(carry: list[Any]) -> list[Any]:
            after = going.turn(dict(zip(keys, carry, strict=True)))
            return [after[k] for k in keys]

        carry = lax.while_loop(unfinished, turn, [state[k] for k in keys])
        return going.results(dict(zip(keys, carry, strict=True)))

    # Step counts are 64-bit whatever the user's setting: 2**31 steps are an hour's
    # work. All code from here on gives its types explicitly.
    with own_types():
        made = in_one_kernel(whole, list(operands), list(cotangents))
    fields = len(SweepCounts._fields) - (not watch)
    return made[:n], made[n:-fields], SweepCounts(*made[-fields:])

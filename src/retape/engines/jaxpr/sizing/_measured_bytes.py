"""A sweep as a program of its own, and what the compiler says that it takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.extend import core

from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.control._settings import Settings
from retape.engines.jaxpr.jaxprs._avals import struct
from retape.engines.jaxpr.jaxprs._jax_internals import axis_names
from retape.engines.jaxpr.jaxprs._provenance import call_p
from retape.engines.jaxpr.sweep._sweep_program import has_plain, traced_sweep
from retape.engines.jaxpr.xla._standalone import Shardings, memory_of


def compiled_temporary_bytes(
    jaxpr: core.ClosedJaxpr,
    active: Sequence[bool],
    compiled: Compiled,
    settings: Settings,
    places: Shardings | None = None,
) -> int | None:
    """Bytes of temporaries that the compiler reports for a sweep, on each device.

    Args:
        jaxpr: The program that is swept.
        active: For each input, whether a derivative by it is wanted.
        compiled: The program as blocks.
        settings: The sizes.
        places: Where the program's inputs are, as far as it is known.

    Returns:
        `None` where the compiler does not report, or an ordinary derivative was asked
        for and there is none.
    """
    if settings.plain and not has_plain(jaxpr, tuple(active)):
        return None
    program = traced_sweep(jaxpr, active, compiled, settings)

    def whole(*values: Any) -> Any:
        # Bound inside `jit`, so that it is lowered as a sweep is.
        return call_p.bind(*values, jaxpr=program, plan=None)

    seeds = len(program.in_avals) - len(jaxpr.in_avals)
    where = None if places is None else (*places, *[None] * seeds)
    with jax.enable_x64(True):
        types = list(map(struct, program.in_avals))
        report = memory_of(whole, types, axis_names(program), where)
    return None if report is None else report.temp

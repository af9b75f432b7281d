"""A sweep as a program of its own, and what the compiler says that it takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.extend import core

from ._activity import propagate, wide
from ._ahead import compiled_for
from ._calls import call_p
from ._compile import Compiled
from ._state import Settings
from ._sweep import sweep
from ._types import struct, varying


def traced_sweep(
    jaxpr: core.ClosedJaxpr,
    active: Sequence[bool],
    compiled: Compiled,
    settings: Settings,
) -> core.ClosedJaxpr:
    """The program `(x..., dy...) -> (y..., dx...)`: values and cotangents at once.

    `dy` has one entry per active output and `dx` one per active input.
    """
    n = len(jaxpr.in_avals)

    def run(*values: Any) -> list[Any]:
        operands = [*values[:n], *compiled.constants]
        outs, cotangents, _ = sweep(compiled, settings, operands, values[n:])
        return [*outs, *cotangents]

    wanted = propagate(jaxpr, tuple(active))
    seeds = [struct(v) for v, a in zip(jaxpr.out_avals, wanted, strict=True) if a]
    with wide(jaxpr):
        return jax.make_jaxpr(run)(*map(struct, jaxpr.in_avals), *seeds)


def temporary_bytes(
    jaxpr: core.ClosedJaxpr,
    active: Sequence[bool],
    compiled: Compiled,
    settings: Settings,
) -> int | None:
    """Bytes of temporaries that the compiler reports for a sweep.

    `None` where it does not report, or where the program is one device's part of a
    larger one, which cannot be compiled alone.
    """
    if any(varying(a) or not a.sharding.mesh.empty for a in jaxpr.in_avals):
        return None
    program = traced_sweep(jaxpr, active, compiled, settings)

    def whole(*values: Any) -> Any:
        # Bound inside `jit`, so that it is lowered as a sweep is.
        return call_p.bind(*values, jaxpr=program, plan=None)

    with jax.enable_x64(True):
        types = map(struct, program.in_avals)
        report = compiled_for(whole, *types).memory_analysis()
    return None if report is None else report.temp_size_in_bytes

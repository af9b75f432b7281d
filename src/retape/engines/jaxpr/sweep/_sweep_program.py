"""The sweep as a jaxpr."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.extend import core

from retape.engines.jaxpr.analysis._activity import propagate, wide
from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.control._settings import Settings
from retape.engines.jaxpr.jaxprs._avals import struct
from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.sweep._run_sweep import sweep


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
        outs, cotangents, _ = sweep(compiled, settings, operands, values[n:])
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
    chosen = [i for i, a in enumerate(active) if a]
    moved = propagate(jaxpr, active)

    def run(*values: Any) -> list[Any]:
        def along(*some: Any) -> tuple[list[Any], list[Any]]:
            full = list(values[:n])
            for i, v in zip(chosen, some, strict=True):
                full[i] = v
            outs = core.jaxpr_as_fun(jaxpr)(*full)
            return [v for v, m in zip(outs, moved, strict=True) if m], outs

        point = [values[i] for i in chosen]
        _, pull, outs = jax.vjp(along, *point, has_aux=True)
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

"""What the sweeps on the way back keep: snapshots, the tape of a stage, and so on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jax.extend import core

from retape._bytes import format_bytes
from retape.engines.jaxpr._pipeline import compile_program
from retape.engines.jaxpr.analysis._activity import wide
from retape.engines.jaxpr.calls._rerun import Rerun
from retape.engines.jaxpr.jaxprs._jax_internals import caller_line, jaxprs_in_params
from retape.engines.jaxpr.jaxprs._provenance import ORIGINS, Origin
from retape.engines.jaxpr.layers.listing._saved_value import SavedValue
from retape.engines.jaxpr.sizing._choose_settings import (
    compile_for_plan,
    default_plan,
)


def in_sweeps(back: core.ClosedJaxpr) -> Iterator[SavedValue]:
    """Snapshots and tapes of all that is reversed under a plan."""
    for origin, line in _origins(back.jaxpr):
        plan = origin.plan or default_plan()
        with wide(origin.primal):
            compiled, settings = compile_for_plan(
                plan, origin.primal, origin.active, compile_program
            )
        if settings.plain:
            continue
        each, stage = compiled.layout.snapshot_bytes(), settings.stage
        where = " in the host's memory" if settings.on_host else ""
        yield SavedValue(
            "snapshot",
            f"{settings.snapshots} x {format_bytes(each)}",
            settings.snapshots * each,
            f"of {plan}{where}",
            line,
        )
        tape = 0 if settings.direct else compiled.tape_bytes(stage)
        if tape:
            yield SavedValue("tape", "", tape, f"of a stage of {stage} steps", line)
        held = compiled.layout.kept_bytes()
        if held:
            yield SavedValue("held", "", held, "once for the whole sweep", line)


def _origins(jaxpr: Any) -> Iterator[tuple[Origin, str]]:
    for eqn in jaxpr.eqns:
        origin = ORIGINS.get(eqn.params.get("jaxpr")) if _is_call(eqn) else None
        if origin is not None and not isinstance(origin.plan, Rerun):
            yield origin, caller_line(eqn)
            continue
        for body in jaxprs_in_params(eqn.params):
            yield from _origins(getattr(body, "jaxpr", body))


def _is_call(eqn: Any) -> bool:
    return eqn.primitive.name == "retape_call"

"""The memory of a sweep over time: predicted by its settings, measured by XLA.

XLA gives a program one block of memory for all of its temporary arrays, as large as the
most that is alive at once. So the measure is one number, that of the compiled gradient.
"""

from typing import Any

from retape.driver._memory_trace import MemoryTrace, Sample, predict_memory
from retape.driver._report import Report
from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.control._settings import Settings
from retape.engines.jaxpr.sizing._byte_counts import (
    fixed_bytes,
    snapshot_bytes,
    stage_bytes,
)
from retape.engines.jaxpr.sizing._choose_settings import plan_of_settings
from retape.schedule import OnlineBinomial

_MOST_STAGES = 200_000
"""Stages beyond which a schedule is not walked through for a picture."""


def memory_trace(
    program: Compiled,
    settings: Settings,
    report: Report,
    compiled: Any,
    budget: int | None,
) -> MemoryTrace:
    """What the settings of a sweep predict, and what its compiled program takes."""
    steps, seconds = report.length, sum(report.seconds.values())
    predicted = ()
    if report.reverses <= _MOST_STAGES and not settings.plain and steps:
        if program.program.length is None and settings.forward == "online":
            actions = OnlineBinomial(settings.snapshots, settings.stage).actions(steps)
        else:
            actions = plan_of_settings(settings).schedule(steps)
        longest = max(1, min(settings.stage, steps))
        predicted = predict_memory(
            actions,
            snapshot_bytes(program),
            stage_bytes(program, settings.stage) // longest,
            working_bytes=fixed_bytes(program, settings.stage, thrift=settings.thrift),
            on_disk=settings.on_host,
        )
    found = compiled.memory_analysis()
    nbytes = 0 if found is None else int(found.temp_size_in_bytes)
    work = predicted[-1].work if predicted else report.advances + steps
    measured = (Sample(0, nbytes, 0.0, 0), Sample(work, nbytes, seconds, steps))
    return MemoryTrace(
        predicted,
        measured if nbytes else (),
        "temporary arrays of the compiled program",
        budget=budget,
    )

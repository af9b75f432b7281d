"""The memory of a run over time: what the plan predicts, and what was measured.

Areas are predicted, from the schedule's actions; the line is measured, by something
that knows nothing of the schedule. Where the line leaves the areas, the plan has no
effect there, or the program holds something that it should not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

from retape._bytes import format_bytes, unit_of
from retape._errors import PlanError
from retape._extras import require
from retape.driver._memory_trace import MemoryTrace
from retape.viz._canvas import BLUE, GOLD, PINK, RED, canvas, legend

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class HasMemory(Protocol):
    """A report with what was measured."""

    @property
    def memory(self) -> MemoryTrace | None: ...


def trace_of(report: HasMemory | MemoryTrace) -> MemoryTrace:
    """The trace of a report.

    Raises:
        PlanError: If nothing was measured.
    """
    if isinstance(report, MemoryTrace):
        return report
    trace = cast("Any", getattr(report, "memory", None))
    if not isinstance(trace, MemoryTrace):
        raise PlanError(
            f"this `{type(report).__name__}` holds nothing of its run over time. Ask "
            "for it: `retape.measure(...)`, `retape.jax.measure(...)` "
            "or a `retape.torch.MemoryMeter`."
        )
    return trace


def timeline(report: HasMemory | MemoryTrace) -> Figure:
    """Draw the memory of a run: predicted as areas, measured as a line.

    Args:
        report: The report of a run that was measured, or its `memory`.

    Returns:
        The figure; `savefig` writes it.

    Raises:
        PlanError: If nothing of the run was measured.
        MissingPackageError: If matplotlib is not installed.

    Examples:
        >>> import numpy as np, retape
        >>> done = retape.measure(
        ...     retape.Program(lambda x, k: 1.01 * x, lambda x, k, g: 1.01 * g),
        ...     np.ones(10**4),
        ...     seed=lambda x: x,
        ...     steps=30,
        ...     plan=retape.fixed_space(snapshots=3),
        ... )
        >>> memory = done.report.memory
        >>> memory.measured_peak <= 1.2 * memory.predicted_peak
        True
        >>> figure = timeline(done.report)
        >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
        ['snapshots', 'tape', 'working state', "Python's heap (tracemalloc)"]
    """
    trace = trace_of(report)
    require("plot", "matplotlib")
    figure, axes = canvas((6, 3.8))
    unit, name = unit_of(max(trace.predicted_peak, trace.measured_peak))
    _areas(axes, trace, unit)
    if trace.measured:
        axes.plot(
            [each.work for each in trace.measured],
            [each.nbytes / unit for each in trace.measured],
            color=axes.xaxis.label.get_color(),
            linewidth=1.1,
            drawstyle="steps-pre",
            label=trace.source,
        )
    if trace.budget is not None:
        axes.axhline(trace.budget / unit, color=RED, linewidth=1, linestyle="--")
        axes.annotate(
            f"budget {format_bytes(trace.budget)}",
            (0, trace.budget / unit),
            # Not the first step: a label outside of the frame is not drawn.
            xycoords=("axes fraction", "data"),
            xytext=(4, 3),
            textcoords="offset points",
            fontsize="small",
        )
    axes.set(xlabel=trace.unit, ylabel=f"memory, {name}")
    # Room for the words above a budget's line.
    room = 1.0 if trace.budget is None else 1.1
    axes.set_ylim(0, room * axes.get_ylim()[1])
    axes.margins(x=0)
    legend(axes)
    return figure


def _areas(axes: Any, trace: MemoryTrace, unit: float) -> None:
    """Snapshots, tape and working state, one upon the other."""
    moments = trace.predicted
    if not moments:
        return
    work = [each.work for each in moments]
    parts = {
        "snapshots": ([m.snapshots / unit for m in moments], GOLD),
        "tape": ([m.tape / unit for m in moments], RED),
        "working state": ([m.working / unit for m in moments], BLUE),
    }
    parts = {name: part for name, part in parts.items() if any(part[0])}
    axes.stackplot(
        work,
        *[heights for heights, _ in parts.values()],
        labels=list(parts),
        colors=[colour for _, colour in parts.values()],
        # A moment tells what was held on the way to it, and so does a sample.
        step="pre",
        linewidth=0,
    )
    if any(each.disk for each in moments):
        heights = [each.disk / unit for each in moments]
        axes.step(work, heights, where="pre", color=PINK, label="snapshots on disk")

"""A schedule as a figure in the paper's colours. The only module that needs matplotlib.

Green: advanced; red: taped; blue: swept back; gold: a snapshot in memory; pink: on
disk.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from retape._extras import require
from retape.schedule import Action
from retape.viz._layout import layout

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GREEN, RED, BLUE, GOLD, PINK = "#3a923a", "#c03d3e", "#3274a1", "#d9a441", "#d684bd"


def draw_figure(actions: Iterable[Action], *, title: str = "") -> Figure:
    """Draw a schedule with matplotlib: steps to the right, time downwards.

    Args:
        actions: The schedule, of at most some thousand stages.
        title: A heading.
    """
    require("plot", "matplotlib")
    from matplotlib.figure import Figure

    drawn = layout(actions)
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for y, row in enumerate(drawn.rows):
        axes.hlines(
            [y] * len(row.advances),
            [start for start, _ in row.advances],
            [stop for _, stop in row.advances],
            colors=GREEN,
            linewidth=1.5,
        )
        for taped in (*row.kept, *([] if row.from_slot else [row.stage])):
            axes.hlines(y, *taped, colors=RED, linewidth=1.5)
        axes.hlines(y + 0.4, *row.stage, colors=BLUE, linewidth=1.5)
    for line in drawn.lines:
        colour = PINK if line.tier == "disk" else GOLD
        axes.vlines(line.step, line.first, line.last, colors=colour, linewidth=1)
    axes.invert_yaxis()
    axes.set(xlabel="step", ylabel="sweep", title=title)
    return figure

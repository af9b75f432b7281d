"""A schedule as a figure in the paper's colours. The only module that needs matplotlib.

Green: advanced; red: taped; blue: swept back; gold: a snapshot in memory; pink: on
another tier.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from retape._extras import require
from retape.schedule._action import Action
from retape.viz._layout import layout
from retape.viz._theme import themed

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_figure(
    actions: Iterable[Action], *, title: str = "", dark: bool = False
) -> Figure:
    """Draw a schedule with matplotlib: steps to the right, time downwards.

    Args:
        actions: The schedule, of at most some thousand stages.
        title: A heading.
        dark: Light lines on a dark ground.

    Returns:
        The figure; `savefig` writes it.

    Raises:
        MissingPackageError: If matplotlib is not installed.
        ScheduleError: If `actions` are none.

    Examples:
        >>> from retape.schedule import Schedule
        >>> figure = draw_figure(Schedule(20, snapshots=3))
        >>> figure.axes[0].get_xlabel()
        'step'
    """
    require("plot", "matplotlib")
    theme = themed(dark)
    drawn = layout(actions)
    figure, axes = theme.canvas((6, 4))
    for y, row in enumerate(drawn.rows):
        axes.hlines(
            [y] * len(row.advances),
            [start for start, _ in row.advances],
            [stop for _, stop in row.advances],
            colors=theme.green,
            linewidth=1.5,
        )
        for taped in (*row.kept, *([] if row.from_slot else [row.stage])):
            axes.hlines(y, *taped, colors=theme.red, linewidth=1.5)
        axes.hlines(y + 0.4, *row.stage, colors=theme.blue, linewidth=1.5)
    for line in drawn.lines:
        colour = theme.gold if line.tier == "memory" else theme.pink
        axes.vlines(line.step, line.first, line.last, colors=colour, linewidth=1)
    axes.invert_yaxis()
    axes.set(xlabel="step", ylabel="sweep", title=title)
    return figure

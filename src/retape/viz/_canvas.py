"""What all figures have alike: the paper's colours, and where the legend is.

The ground and the words are matplotlib's: `plt.style.context("dark_background")` makes
a figure for a dark page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GREEN, RED, BLUE, GOLD, PINK = "#3a923a", "#c03d3e", "#3274a1", "#d9a441", "#d684bd"
"""Advanced, taped, swept back, in memory, on another tier."""


def canvas(size: tuple[float, float]) -> tuple[Figure, Any]:
    """A figure and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots()


def legend(axes: Any) -> None:
    """A legend under the picture, where it hides nothing."""
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.16),
        ncols=2,
        frameon=False,
        fontsize="small",
    )

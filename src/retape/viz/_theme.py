"""Colours of figures, on a light and on a dark ground."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Theme:
    """The paper's colours: advanced, taped, swept back, in memory, on disk."""

    ground: str
    ink: str
    faint: str
    green: str = "#3a923a"
    red: str = "#c03d3e"
    blue: str = "#3274a1"
    gold: str = "#d9a441"
    pink: str = "#d684bd"

    def canvas(self, size: tuple[float, float]) -> tuple[Figure, Any]:
        """A figure and its axes."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=size, layout="constrained", facecolor=self.ground)
        axes: Any = figure.subplots()
        axes.set_facecolor(self.ground)
        for spine in axes.spines.values():
            spine.set_color(self.faint)
        axes.tick_params(colors=self.ink, which="both")
        for part in (axes.xaxis.label, axes.yaxis.label, axes.title):
            part.set_color(self.ink)
        return figure, axes

    def legend(self, axes: Any) -> None:
        """A legend under the picture, where it hides nothing."""
        axes.legend(
            loc="upper center",
            bbox_to_anchor=(0.5, -0.16),
            ncols=2,
            frameon=False,
            fontsize="small",
            labelcolor=self.ink,
        )


LIGHT = Theme(ground="#ffffff", ink="#222222", faint="#999999")
DARK = Theme(
    ground="#1e2129", ink="#e6e6e6", faint="#777777",
    red="#e0605e", blue="#5b9bd5", green="#5cb85c",
)  # fmt: skip


def themed(dark: bool) -> Theme:
    """The colours for a ground."""
    return DARK if dark else LIGHT

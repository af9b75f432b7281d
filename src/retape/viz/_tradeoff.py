"""Memory against extra work, as a figure. Needs matplotlib when it is called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from retape._bytes import format_bytes
from retape._extras import require
from retape.viz._canvas import BLUE, RED, canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_tradeoff(
    points: Sequence[tuple[str, int, float]], memory: int | None = None
) -> Figure:
    """Draw what ways to take a gradient cost.

    Args:
        points: Name, peak bytes, and work done once more as a fraction; such as
            `retape.jax.advise(...).points`.
        memory: Bytes that there are, drawn as a line.

    Returns:
        The figure; `savefig` writes it.

    Raises:
        MissingPackageError: If matplotlib is not installed.

    Examples:
        >>> points = [("as it is", 10**9, 0.0), ("segments", 10**8, 0.9)]
        >>> figure = draw_tradeoff(points, memory=5 * 10**8)
        >>> figure.axes[0].get_ylabel()
        'peak memory'
    """
    require("plot", "matplotlib")
    figure, axes = canvas((7, 4.5))
    extra = [100 * more for _, _, more in points]
    right = max(extra, default=0.0) / 2
    axes.scatter(extra, [peak for _, peak, _ in points], color=BLUE, zorder=3)
    for (name, peak, _), x in zip(points, extra, strict=True):
        # On the right a name stands before its point, not across the frame.
        side, gap = ("right", -6) if x > right else ("left", 6)
        axes.annotate(
            name, (x, peak), textcoords="offset points", xytext=(gap, 4),
            fontsize="small", ha=side,
        )  # fmt: skip
    if memory is not None:
        axes.axhline(memory, color=RED, linewidth=1)
        axes.annotate(
            format_bytes(memory),
            (0, memory),
            fontsize="small",
            va="bottom",
        )
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(lambda peak, _: format_bytes(int(peak)))
    axes.set(xlabel="extra compute, percent", ylabel="peak memory")
    return figure

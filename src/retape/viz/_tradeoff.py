"""Memory against extra work, as a figure. Needs matplotlib when it is called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from retape._bytes import format_bytes
from retape._extras import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_tradeoff(
    points: Sequence[tuple[str, int, float]], memory: int | None = None
) -> Figure:
    """Draw what ways to take a gradient cost.

    Args:
        points: Name, peak bytes, and work done once more as a fraction; such as
            `retape.jax.plan(...).points`.
        memory: Bytes that there are, drawn as a line.

    Returns:
        The figure; `savefig` writes it.

    Raises:
        MissingPackageError: If matplotlib is not installed.

    Examples:
        >>> points = [("as it is", 10**9, 0.0), ("segments", 10**8, 0.9)]
        >>> figure = draw_tradeoff(points, memory=5 * 10**8)
        >>> figure.axes[0].get_ylabel()
        'peak bytes'
    """
    require("plot", "matplotlib")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    extra = [100 * more for _, _, more in points]
    axes.scatter(extra, [peak for _, peak, _ in points], color="#3274a1", zorder=3)
    for (name, peak, _), x in zip(points, extra, strict=True):
        axes.annotate(
            name, (x, peak), textcoords="offset points", xytext=(6, 4), fontsize=8
        )
    if memory is not None:
        axes.axhline(memory, color="#c03d3e", linewidth=1)
        axes.annotate(format_bytes(memory), (0, memory), fontsize=8, va="bottom")
    axes.set_yscale("log")
    axes.set(xlabel="extra compute, percent", ylabel="peak bytes")
    return figure

"""A schedule as text, or as a figure in the paper's colours.

A run is drawn as the paper draws it: steps to the right, time downwards. A *row* is
what is done between two reads of a snapshot: some advances, then one stage. A
snapshot, or a tape in a slot, is a vertical line from the row in which it is written to
that in which it is dropped. In a figure green is advanced, red taped, blue swept back,
gold a snapshot in memory, pink one on another tier.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from retape._errors import ScheduleError
from retape._extras import require
from retape.schedule import Advance, Drop, Restore, Reverse, Store, Sweep, Tape
from retape.schedule._action import Action
from retape.viz._canvas import BLUE, GOLD, GREEN, PINK, RED, canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Row:
    """One sweep from a snapshot to a stage.

    Attributes:
        advances: The (start, stop) of what is advanced.
        stage: The (start, stop) of what is swept back.
        kept: The (start, stop) of what is taped for a slot.
        from_slot: Whether the stage is swept back from a tape in a slot; otherwise it
            is taped in this row.
    """

    advances: tuple[tuple[int, int], ...]
    stage: tuple[int, int]
    kept: tuple[tuple[int, int], ...] = ()
    from_slot: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A snapshot's life, from the row that writes it to the last row that it is in."""

    step: int
    tier: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Layout:
    """All rows, from first to last, and all snapshots."""

    length: int
    rows: tuple[Row, ...]
    lines: tuple[Line, ...]


def layout(actions: Iterable[Action]) -> Layout:
    """Arrange a schedule in rows.

    Raises:
        ScheduleError: If it is no stream of actions.

    Examples:
        >>> from retape.schedule import Schedule
        >>> layout(Schedule(2, snapshots=1)).rows  # doctest: +NORMALIZE_WHITESPACE
        (Row(advances=((0, 1),), stage=(1, 2), kept=(), from_slot=False),
         Row(advances=(), stage=(0, 1), kept=(), from_slot=False))
    """
    if not isinstance(actions, Iterable):
        raise ScheduleError(
            f"`{actions!r}` is not a schedule. Pass a stream of actions, such as "
            "`retape.schedule.Schedule(20, snapshots=3)` or a plan's for a number of "
            "steps, `plan.schedule(20)`."
        )
    drawing = _Drawing()
    for action in actions:
        drawing.follow(action)
    length = max((row.stage[1] for row in drawing.rows), default=0)
    return Layout(length, tuple(drawing.rows), tuple(drawing.lines))


@dataclass(slots=True)
class _Drawing:
    rows: list[Row] = field(default_factory=list[Row])
    lines: list[Line] = field(default_factory=list[Line])
    advances: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    kept: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    alive: dict[tuple[str, int], tuple[int, int]] = field(
        default_factory=dict[tuple[str, int], tuple[int, int]]
    )

    def follow(self, action: Action) -> None:
        match action:
            case Advance(start, stop):
                self.advances.append((start, stop))
            case Reverse(start, stop):
                self._row(start, stop, from_slot=False)
            case Tape(start, stop, slot, tier):
                self.kept.append((start, stop))
                self.alive[tier, slot] = (start, len(self.rows))
            case Sweep(start, stop):
                self._row(start, stop, from_slot=True)
            case Store(step, slot, tier):
                self.alive[tier, slot] = (step, len(self.rows))
            case Drop(step, slot, tier):
                _, first = self.alive.pop((tier, slot))
                self.lines.append(Line(step, tier, first, len(self.rows)))
            case Restore():
                pass

    def _row(self, start: int, stop: int, *, from_slot: bool) -> None:
        advances, kept = tuple(self.advances), tuple(self.kept)
        self.rows.append(Row(advances, (start, stop), kept, from_slot))
        self.advances.clear()
        self.kept.clear()


# As text ----------------------------------------------------------------------


LEGEND = "o snapshot   > advanced   # taped and swept back   | kept"

MIXED = "% taped, the tape kept   < swept back from a kept tape"


def draw_text(
    actions: Iterable[Action], *, width: int = 100, rows: int | None = None
) -> str:
    """Draw a schedule: steps to the right, time downwards.

    Args:
        actions: The schedule.
        width: Characters in a row; several steps share one if there are more steps.
        rows: Draw no more than this many rows.

    Raises:
        ScheduleError: If `actions` are none.

    Examples:
        >>> from retape.schedule import Schedule
        >>> print(draw_text(Schedule(6, snapshots=2)))
        o>>o>#
        |  o#
        |  #
        oo#
        |#
        #
        o snapshot   > advanced   # taped and swept back   | kept
    """
    drawn = layout(actions)
    lines = [_row(drawn, i, width) for i in range(len(drawn.rows))[:rows]]
    if rows is not None and rows < len(drawn.rows):
        lines.append(f"... and {len(drawn.rows) - rows} more rows")
    mixed = any(row.kept for row in drawn.rows)
    return "\n".join([*lines, LEGEND, MIXED] if mixed else [*lines, LEGEND])


def _row(drawn: Layout, index: int, width: int) -> str:
    cells = [" "] * min(width, max(1, drawn.length))

    def put(start: int, stop: int, mark: str) -> None:
        first = _column(start, drawn.length, len(cells))
        last = _column(max(start, stop - 1), drawn.length, len(cells))
        for k in range(first, last + 1):
            cells[k] = mark

    row = drawn.rows[index]
    begun = min([row.stage[0], *(start for start, _ in (*row.advances, *row.kept))])
    for start, stop in row.advances:
        put(start, stop, ">")
    for line in drawn.lines:
        if line.first <= index < line.last:
            mark = "o" if line.first == index or line.step == begun else "|"
            put(line.step, line.step + 1, mark)
    for start, stop in row.kept:
        put(start, stop, "%")
    put(*row.stage, "<" if row.from_slot else "#")
    return "".join(cells).rstrip()


def _column(step: int, length: int, width: int) -> int:
    return step if length <= width else step * width // length


# As a figure ------------------------------------------------------------------


def draw_figure(actions: Iterable[Action], *, title: str = "") -> Figure:
    """Draw a schedule with matplotlib: steps to the right, time downwards.

    Args:
        actions: The schedule, of at most some thousand stages.
        title: A heading.

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
    drawn = layout(actions)
    figure, axes = canvas((6, 4))
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
        colour = GOLD if line.tier == "memory" else PINK
        axes.vlines(line.step, line.first, line.last, colors=colour, linewidth=1)
    axes.invert_yaxis()
    axes.set(xlabel="step", ylabel="sweep", title=title)
    return figure

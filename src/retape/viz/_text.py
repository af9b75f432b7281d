"""A schedule drawn in characters, for a terminal or a docstring."""

from collections.abc import Iterable

from retape.schedule._action import Action
from retape.viz._layout import Layout, layout

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

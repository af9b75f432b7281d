"""From a stream of actions to lines to be drawn; no plotting library here.

A run is drawn as the paper draws it: steps to the right, time downwards. A *row* is
what is done between two reads of a snapshot: some advances, then one stage. A
snapshot, or a tape in a slot, is a vertical line from the row in which it is written to
that in which it is dropped.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from retape._errors import ScheduleError
from retape.schedule import Advance, Drop, Restore, Reverse, Store, Sweep, Tape
from retape.schedule._action import Action


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

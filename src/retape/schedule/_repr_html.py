"""Schedules in a notebook: their counts, and the slots in use over time."""

from collections.abc import Iterable, Iterator
from dataclasses import fields
from itertools import islice
from typing import Any, Protocol

from retape._html import staircase, table
from retape.schedule._action import Action, Drop, Store, Tape
from retape.schedule._cost import Counts
from retape.schedule._in_use import in_use

_MOST_ACTIONS = 20_000


class _Counted(Protocol):
    def __iter__(self) -> Iterator[Action]: ...

    def counts(self) -> Counts: ...


def schedule_html(schedule: _Counted) -> str:
    """Counts as a table; under it, for schedules that are not too long, a picture."""
    counts: Any = schedule.counts()
    rows = [
        (name.replace("_", " "), str(getattr(counts, name))) for name in _names(counts)
    ]
    text = table(type(schedule).__name__, rows)
    actions = list(islice(schedule, _MOST_ACTIONS))
    if len(actions) == _MOST_ACTIONS:
        return text
    most = counts.peak_snapshots
    label = f"Slots in use over the steps that are run, at most {most}"
    return text + staircase(slots_in_use(actions), label)


def _names(counts: Any) -> tuple[str, ...]:
    return tuple(each.name for each in fields(counts) if each.repr)


def slots_in_use(actions: Iterable[Action]) -> list[tuple[int, int]]:
    """After how many steps run how many slots are in use.

    Examples:
        >>> from retape.schedule import Schedule
        >>> slots_in_use(Schedule(2, snapshots=1))
        [(0, 1), (2, 0)]
    """
    return [
        (now.work, now.total)
        for now in in_use(actions)
        if isinstance(now.action, Store | Tape | Drop)
    ]

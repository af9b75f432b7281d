"""The schedule explorer: one page of HTML that needs nothing else.

The page holds the library's own schedules, three characters an action, for all lengths
and numbers of snapshots up to a limit. Its scripts count and draw them, and know
nothing of how a schedule is made.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from retape._errors import PlanError
from retape.schedule import Advance, Drop, Restore, Reverse, Schedule, Store
from retape.schedule._action import Action

_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_TEMPLATE = Path(__file__).with_name("explorer.html")
_SPLITS = ("binomial", "bisection")


def explorer(steps: int = 40, snapshots: int = 6) -> str:
    """A page on which schedules can be looked at, action by action.

    Args:
        steps: The longest run, 61 at most.
        snapshots: The most snapshots.

    Returns:
        HTML, complete in itself: no other file and no network is needed.

    Raises:
        PlanError: If a number is out of range.

    Examples:
        >>> page = explorer(steps=9, snapshots=2)
        >>> page.startswith("<!doctype html>"), "http" in page
        (True, False)
    """
    for name, value, most in (("steps", steps, 61), ("snapshots", snapshots, 61)):
        if not 1 <= value <= most:
            raise PlanError(
                f"`{name}={value}` is out of the page's range. Pass 1 to {most}."
            )
    schedules = {
        f"{split} {n} {d}": encode(Schedule(n, snapshots=d, split=split))
        for split in _SPLITS
        for n in range(1, steps + 1)
        for d in range(1, snapshots + 1)
    }
    data = {
        "steps": steps,
        "snapshots": snapshots,
        "splits": _SPLITS,
        "schedules": schedules,
    }
    text = json.dumps(data, separators=(",", ":"))
    return _TEMPLATE.read_text(encoding="utf-8").replace("@DATA@", text)


def encode(actions: Iterable[Action]) -> str:
    """Actions as the page reads them.

    Examples:
        >>> encode(Schedule(2, snapshots=1))
        'S00A01V12R00D00V01'
    """
    found: list[str] = []
    for action in actions:
        match action:
            case Advance(start, stop):
                found.append(f"A{_LETTERS[start]}{_LETTERS[stop]}")
            case Reverse(start, stop):
                found.append(f"V{_LETTERS[start]}{_LETTERS[stop]}")
            case Store(step, slot):
                found.append(f"S{_LETTERS[step]}{_LETTERS[slot]}")
            case Restore(step, slot):
                found.append(f"R{_LETTERS[step]}{_LETTERS[slot]}")
            case Drop(step, slot):
                found.append(f"D{_LETTERS[step]}{_LETTERS[slot]}")
            case _:
                raise PlanError(
                    f"`{action}` is not an action of the page: it shows schedules "
                    "whose slots hold states. Pass one of those."
                )
    return "".join(found)

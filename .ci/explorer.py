"""The schedule explorer: a page of the documentation that needs nothing else.

The page holds the library's own schedules, three characters an action, for all lengths
and numbers of snapshots up to a limit. Its scripts count and draw them, and know
nothing of how a schedule is made.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from retape.schedule import Advance, Drop, Restore, Reverse, Schedule, Store

_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_NAMES = {Advance: "A", Reverse: "V", Store: "S", Restore: "R", Drop: "D"}
_SPLITS = ("binomial", "bisection")


def explorer(steps: int = 40, snapshots: int = 6) -> str:
    """The page, for runs of up to so many steps and snapshots."""
    schedules = {
        f"{split} {n} {d}": encode(Schedule(n, snapshots=d, split=split))
        for split in _SPLITS
        for n in range(1, steps + 1)
        for d in range(1, snapshots + 1)
    }
    data = {"steps": steps, "snapshots": snapshots, "splits": _SPLITS}
    text = json.dumps(data | {"schedules": schedules}, separators=(",", ":"))
    template = Path(__file__).with_name("explorer.html").read_text(encoding="utf-8")
    return template.replace("@DATA@", text)


def encode(actions: Iterable[tuple[int, ...]]) -> str:
    """Actions as the page reads them."""
    return "".join(
        f"{_NAMES[type(action)]}{_LETTERS[action[0]]}{_LETTERS[action[1]]}"
        for action in actions
    )

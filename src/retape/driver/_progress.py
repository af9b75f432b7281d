"""How far a run has come, in the unit that costs time: steps run, taped or not."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import TextIO, TypeAlias


@dataclass(frozen=True, slots=True)
class Progress:
    """Work done and left.

    Attributes:
        done: Steps advanced and taped so far.
        total: Steps that will have been advanced and taped at the end; `None` while
            the length of the run is unknown.
        reversed: Steps reversed so far.
        length: Steps of the run, `None` while unknown.
    """

    done: int
    total: int | None
    reversed: int
    length: int | None


Watcher: TypeAlias = Callable[[Progress], None]


@dataclass(slots=True)
class Bar:
    """Draws progress on one line of a terminal, at most ten times a second.

    Example:
        >>> _line(Progress(done=25, total=50, reversed=4, length=10))
        '[##########          ]  50% 25/50 steps run, 4/10 reversed'
    """

    out: TextIO = field(default_factory=lambda: sys.stderr)
    _drawn: float = field(default=0.0, init=False)

    def __call__(self, progress: Progress) -> None:
        now = monotonic()
        ended = progress.done == progress.total
        if now - self._drawn < 0.1 and not ended:
            return
        self._drawn = now
        self.out.write("\r" + _line(progress) + ("\n" if ended else ""))
        self.out.flush()


def _line(progress: Progress) -> str:
    if progress.total is None:
        return f"{progress.done} steps run, length unknown"
    share = progress.done / progress.total if progress.total else 1.0
    bar = "#" * int(20 * share)
    return (
        f"[{bar:20}] {share:4.0%} {progress.done}/{progress.total} steps run, "
        f"{progress.reversed}/{progress.length} reversed"
    )

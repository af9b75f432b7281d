"""Progress of a run, in the unit that costs time: steps run, taped or not."""

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

    The time left supposes that steps go on to take as long as they did so far.

    Examples:
        >>> _line(Progress(done=25, total=50, reversed=4, length=10), 12.3, 12.3)
        '[##########          ]  50% 25/50 steps run, 4/10 reversed, 0:12 < 0:12'
    """

    out: TextIO = field(default_factory=lambda: sys.stderr)
    _began: tuple[float, int] | None = field(default=None, init=False)
    _drawn: float = field(default=0.0, init=False)
    _width: int = field(default=0, init=False)
    _ended: bool = field(default=False, init=False)

    def __call__(self, progress: Progress) -> None:
        now = monotonic()
        if self._began is None:
            self._began = now, progress.done
        ended = progress.reversed == progress.length
        if self._ended or (now - self._drawn < 0.1 and not ended):
            return
        self._drawn, self._ended = now, ended
        spent, made = now - self._began[0], progress.done - self._began[1]
        left = None
        if progress.total is not None and made > 0:
            left = spent * (progress.total - progress.done) / made
        line = _line(progress, spent, left)
        self.out.write("\r" + line.ljust(self._width) + ("\n" if ended else ""))
        self.out.flush()
        self._width = len(line)


def _line(progress: Progress, spent: float, left: float | None) -> str:
    """One line: steps done and left, the time spent < the time left."""
    clock = _clock(spent)
    if progress.length is None:
        return f"{progress.done} steps run, length unknown, {clock}"
    swept = f"{progress.reversed}/{progress.length} reversed"
    if progress.total is None:
        return f"{progress.done} steps run, {swept}, {clock}"
    if left is not None:
        clock += f" < {_clock(left)}"
    share = progress.done / progress.total if progress.total else 1.0
    bar = "#" * int(20 * share)
    return (
        f"[{bar:20}] {share:4.0%} {progress.done}/{progress.total} steps run, "
        f"{swept}, {clock}"
    )


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{seconds:02}"
    return f"{minutes}:{seconds:02}"

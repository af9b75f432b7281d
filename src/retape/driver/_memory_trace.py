"""Memory of a run over time: predicted by its schedule, and measured.

Time is counted in work: steps run, advanced or taped. Both a schedule and a run that
obeys it have that clock, so the two can be laid over one another.
"""

import tracemalloc
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import perf_counter
from types import TracebackType
from typing import NamedTuple, Self

from retape.driver._progress import Progress
from retape.schedule import Drop, Restore, Reverse, Sweep
from retape.schedule._action import Action
from retape.schedule._in_use import in_use

_MOST = 4096
"""Samples kept: neighbours are merged beyond, so long runs take no more memory."""


class Sample(NamedTuple):
    """A measurement between one moment and the one before.

    Attributes:
        work: Steps run until then.
        nbytes: The most bytes alive since the sample before.
        seconds: Since the beginning.
        reversed: Steps reversed until then.
    """

    work: int
    nbytes: int
    seconds: float
    reversed: int


class Moment(NamedTuple):
    """The bytes that a schedule holds from one moment to the next.

    Attributes:
        work: Steps run until then.
        snapshots: In memory, tapes that are kept included.
        tape: Of the stage that is being reversed.
        working: The state that is worked on, and cotangents.
        disk: Snapshots on disk, no part of memory.
    """

    work: int
    snapshots: int
    tape: int
    working: int
    disk: int

    @property
    def total(self) -> int:
        """Bytes in memory."""
        return self.snapshots + self.tape + self.working


@dataclass(frozen=True, slots=True)
class MemoryTrace:
    """The memory of one run over time: predicted, and measured.

    Attributes:
        predicted: What the schedule holds; empty if there was none beforehand.
        measured: What was alive, by a measure that knows nothing of the schedule.
        source: What measured it.
        unit: What work is counted in.
        budget: The bytes that the plan was given, if it counts bytes.
    """

    predicted: tuple[Moment, ...]
    measured: tuple[Sample, ...]
    source: str
    unit: str = "steps run"
    budget: int | None = None

    @property
    def predicted_peak(self) -> int:
        """The most bytes that were predicted."""
        return max((each.total for each in self.predicted), default=0)

    @property
    def measured_peak(self) -> int:
        """The most bytes that were measured."""
        return max((each.nbytes for each in self.measured), default=0)


def predict_memory(
    actions: Iterable[Action],
    capsule_bytes: int,
    tape_bytes: int,
    *,
    working_bytes: int = 0,
    cotangent_bytes: int = 0,
    on_disk: bool = False,
) -> tuple[Moment, ...]:
    """Predict the bytes that a schedule holds over time.

    Args:
        actions: The schedule.
        capsule_bytes: Of one snapshot.
        tape_bytes: Of the tape of one step.
        working_bytes: Of what is there all the time.
        cotangent_bytes: Of what is there from the first stage that is reversed on.
        on_disk: Whether snapshots of all tiers are on disk.

    Returns:
        A moment for each action that changes what is held, at most some thousands: of
        longer schedules the fullest of several neighbours.

    Examples:
        >>> from retape.schedule import Schedule
        >>> for moment in predict_memory(Schedule(4, snapshots=2), 10, 7):
        ...     print(moment.work, moment.snapshots, moment.tape)
        0 10 0
        1 10 0
        1 20 0
        3 20 0
        4 20 7
        5 20 0
        6 20 7
        7 10 7
        8 0 7
    """
    kept: list[Moment] = []
    stride, count = 1, 0
    working = working_bytes

    def keep(now: Moment) -> None:
        nonlocal stride, count
        if count % stride and kept:
            kept[-1] = max(kept[-1], now, key=lambda m: m.total)
        else:
            kept.append(now)
        count += 1
        if len(kept) == _MOST:
            pairs = zip(kept[::2], kept[1::2], strict=True)
            kept[:] = [max(pair, key=lambda m: m.total) for pair in pairs]
            stride *= 2

    def tape_of(start: int, stop: int) -> int:
        return (stop - start) * tape_bytes

    for action, work, held in in_use(actions, lambda step: capsule_bytes, tape_of):
        if isinstance(action, Drop | Restore):
            continue
        tape = 0
        if isinstance(action, Reverse):
            tape = tape_of(action.start, action.stop)
        if isinstance(action, Reverse | Sweep):
            working = working_bytes + cotangent_bytes
        disk = sum(held[tier] for tier in held if on_disk or tier == "disk")
        keep(Moment(work, sum(held.values()) - disk, tape, working, disk))
    return tuple(kept)


@dataclass(slots=True)
class Meter:
    """A watcher of a run that measures Python's heap, with `tracemalloc`.

    NumPy's arrays are seen, memory that C or Fortran allocates by itself is not. The
    run takes longer while it is measured. Before the run there is nothing: what was
    allocated earlier, such as the start state, does not count.

    Examples:
        >>> with Meter() as meter:
        ...     meter(Progress(0, 2, 0, 1)); block = bytearray(10**6); del block
        ...     meter(Progress(1, 2, 0, 1))
        >>> 10**6 < meter.samples[-1].nbytes < 10**6 + 10**5
        True
    """

    samples: list[Sample] = field(default_factory=list[Sample])
    after: Callable[[Progress], None] | None = None
    _began: float = 0.0
    _base: int = 0
    _stride: int = 1
    _count: int = 0
    _ours: bool = False

    def __enter__(self) -> Self:
        self._ours = not tracemalloc.is_tracing()
        if self._ours:
            tracemalloc.start()
        self._base, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        self._began = perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._ours:
            tracemalloc.stop()

    def __call__(self, progress: Progress) -> None:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        spent = perf_counter() - self._began
        self.add(Sample(progress.done, peak - self._base, spent, progress.reversed))
        if self.after is not None:
            self.after(progress)

    def add(self, sample: Sample) -> None:
        """Keep a sample, or merge it with the one before: peaks are never lost."""
        samples = self.samples
        if self._count % self._stride and samples:
            samples[-1] = _merged(samples[-1], sample)
        else:
            samples.append(sample)
        self._count += 1
        if len(samples) == _MOST:
            pairs = zip(samples[::2], samples[1::2], strict=True)
            samples[:] = [_merged(*pair) for pair in pairs]
            self._stride *= 2


def _merged(one: Sample, other: Sample) -> Sample:
    return other._replace(nbytes=max(one.nbytes, other.nbytes))

"""Memory of a run over time: predicted by its schedule, and measured.

Time is counted in work: steps run, advanced or taped. Both a schedule and a run that
obeys it have that clock, so the two can be laid over one another.
"""

import tracemalloc
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import perf_counter
from types import TracebackType
from typing import Generic, NamedTuple, Self, TypeVar

from retape.driver._progress import Progress
from retape.schedule import Drop, Restore, Reverse, Sweep
from retape.schedule._action import Action
from retape.schedule._in_use import in_use

T = TypeVar("T")

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
    kept = _Thinned[Moment](_fuller)
    working = working_bytes

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
        kept.add(Moment(work, sum(held.values()) - disk, tape, working, disk))
    return tuple(kept.points)


@dataclass(slots=True)
class _Thinned(Generic[T]):
    """Points in their order; of many, neighbours are merged.

    Attributes:
        merged: Of two neighbours one.
        points: They.
    """

    merged: Callable[[T, T], T]
    points: list[T] = field(default_factory=list[T])
    _stride: int = 1
    _count: int = 0

    def add(self, point: T) -> None:
        """Keep a point, or merge it with the one before."""
        points = self.points
        if self._count % self._stride and points:
            points[-1] = self.merged(points[-1], point)
        else:
            points.append(point)
        self._count += 1
        if len(points) == _MOST:
            pairs = zip(points[::2], points[1::2], strict=True)
            points[:] = [self.merged(*pair) for pair in pairs]
            self._stride *= 2


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

    after: Callable[[Progress], None] | None = None
    _began: float = 0.0
    _base: int = 0
    _kept: _Thinned[Sample] = field(default_factory=lambda: _Thinned[Sample](_merged))
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

    @property
    def samples(self) -> list[Sample]:
        """What was measured; peaks are never lost."""
        return self._kept.points

    def add(self, sample: Sample) -> None:
        """Keep a sample."""
        self._kept.add(sample)


def _fuller(one: Moment, other: Moment) -> Moment:
    return one if one.total >= other.total else other


def _merged(one: Sample, other: Sample) -> Sample:
    return other._replace(nbytes=max(one.nbytes, other.nbytes))

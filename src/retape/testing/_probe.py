"""A machine that is tried: runs of it in pieces, and what came out of them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import index
from typing import Any

from retape._errors import MachineError
from retape.driver._machine import OverwritingMachine, offers
from retape.testing._laws import seen

_ENDLESS = 1_000_000
"""Steps after which a run whose length is unknown is taken to be endless."""


@dataclass(slots=True)
class Probe:
    """A machine under trial.

    Attributes:
        make: Gives a machine, at its best a new one each time.
        view: From a value to a tree that shows all of it, if it is none.
        stage: The most steps that it can reverse at once, or `None`.
        machine: The one under trial.
        steps: The length of its run, found out if it does not tell.
    """

    make: Callable[[], Any]
    view: Callable[[Any], Any] | None
    stage: int | None
    machine: Any = field(init=False)
    steps: int = field(init=False)

    def __post_init__(self) -> None:
        made = self.make()
        self.machine = _Copied(made) if offers(made, OverwritingMachine) else made
        told = self.machine.length()
        self.steps = self._run_to_the_end() if told is None else index(told)

    def _run_to_the_end(self) -> int:
        capsule, total, asked = self.machine.start(), 0, 1
        while total < _ENDLESS:
            capsule, made = self.machine.advance(capsule, asked)
            total += index(made)
            if index(made) < asked:
                return total
            asked *= 2
        raise MachineError(
            f"`{type(self.machine).__name__}` has no end: {total} steps were made, as "
            "many as were asked for. Return fewer where the program ends, or check a "
            "shorter run."
        )

    @property
    def longest(self) -> int:
        """The longest stage to try."""
        return min(self.stage or self.steps, self.steps)

    def at(self, step: int) -> Any:
        """The capsule before a step."""
        start = self.machine.start()
        return start if step == 0 else self.machine.advance(start, step)[0]

    def seen(self, value: Any) -> bytes:
        """What tells whether two values are the same."""
        return seen(value, self.view)

    def cotangent(self, cuts: Sequence[int], left: int = 0) -> Any:
        """The cotangent before step `left`, in stages that end at these steps."""
        stops = sorted({*cuts, self.steps})
        stops = [stop for stop in stops if stop > left]
        cotangent = None
        for stop in reversed(stops):
            start = max([left, *(cut for cut in stops if cut < stop)])
            capsule = self.at(start)
            cotangent = self.machine.reverse(capsule, stop - start, cotangent)
        return cotangent

    def partitions(self) -> Iterator[list[int]]:
        """Ways to cut a run into stages: long ones, short ones, and some of each."""
        longest, steps = max(1, self.longest), self.steps
        long = list(range(steps % longest or longest, steps, longest))
        yield long
        yield list(range(longest, steps, longest))
        single = min(steps, 8)
        yield sorted({*long, *range(max(1, steps - single), steps)})
        yield sorted({*long, *range(1, single)})


class _Copied:
    """An `OverwritingMachine` as the driver uses it: what is kept is copied."""

    def __init__(self, machine: Any) -> None:
        self.machine, self.copy = machine, machine.copy_capsule

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.machine, name)
        return self._taped if name == "tape" else found

    def start(self) -> Any:
        return self.copy(self.machine.start())

    def advance(self, capsule: Any, steps: int) -> tuple[Any, Any]:
        after, made = self.machine.advance(self.copy(capsule), steps)
        return self.copy(after), made

    def reverse(self, capsule: Any, steps: int, cotangent: Any) -> Any:
        return self.machine.reverse(self.copy(capsule), steps, cotangent)

    def _taped(self, capsule: Any, steps: int) -> tuple[Any, Any]:
        tape, after = self.machine.tape(self.copy(capsule), steps)
        return tape, self.copy(after)


def shown(cuts: Sequence[int], probe: Probe) -> str:
    stops = [*cuts, probe.steps]
    few = stops if len(stops) <= 6 else [*stops[:3], "...", *stops[-2:]]
    return ", ".join(map(str, few))


def is_count(value: Any) -> bool:
    try:
        return not isinstance(value, bool) and index(value) >= 0
    except TypeError:
        return False

"""A machine over integers: exact, instant, and it counts what it is asked to do."""

from dataclasses import dataclass
from typing import TypeAlias

_MODULUS = (1 << 61) - 1


ToyCotangent: TypeAlias = tuple[int, int]
"""The output of the run, carried along, and the derivative so far."""


@dataclass(frozen=True, slots=True)
class ToyCapsule:
    """The integer before step `step`."""

    step: int
    value: int


@dataclass(slots=True)
class ToyMachine:
    """Step k maps x to x*x + k modulo the Mersenne prime 2^61 - 1.

    Derivatives modulo a prime are exact, so two ways to the same gradient agree in
    every bit or one of them is wrong. The order of the steps matters, and so does each
    of them.

    Attributes:
        steps: The length of the run.
        x0: The start value.
        tells_length: False for a machine whose length only running can tell.
        advanced: Steps advanced so far.
        taped: Steps taped so far.

    Examples:
        >>> machine = ToyMachine(3, x0=2)
        >>> machine.finish(machine.reverse(machine.start(), 3, None))
        (291, 1088)
    """

    steps: int
    x0: int = 3
    tells_length: bool = True
    advanced: int = 0
    taped: int = 0

    def length(self) -> int | None:
        return self.steps if self.tells_length else None

    def start(self) -> ToyCapsule:
        return ToyCapsule(0, self.x0)

    def advance(self, capsule: ToyCapsule, steps: int) -> tuple[ToyCapsule, int]:
        stop = min(capsule.step + steps, self.steps)
        x = capsule.value
        for k in range(capsule.step, stop):
            x = _step(x, k)
        self.advanced += stop - capsule.step
        return ToyCapsule(stop, x), stop - capsule.step

    def reverse(
        self, capsule: ToyCapsule, steps: int, cotangent: ToyCotangent | None
    ) -> ToyCotangent:
        tape, after = self.tape(capsule, steps)
        return self.sweep(tape, steps, cotangent or (after.value, 1))

    def tape(
        self, capsule: ToyCapsule, steps: int
    ) -> tuple[tuple[int, ...], ToyCapsule]:
        tape: list[int] = []
        x, stop = capsule.value, capsule.step + steps
        for k in range(capsule.step, stop):
            tape.append(x)
            x = _step(x, k)
        self.taped += steps
        return tuple(tape), ToyCapsule(stop, x)

    def sweep(
        self, tape: tuple[int, ...], steps: int, cotangent: ToyCotangent
    ) -> ToyCotangent:
        output, slope = cotangent
        for x in reversed(tape):
            slope = slope * 2 * x % _MODULUS
        return output, slope

    def tape_nbytes(self, tape: tuple[int, ...]) -> int:
        return 8 * len(tape)

    def nbytes(self, capsule: ToyCapsule) -> int:
        return 8

    def finish(self, cotangent: ToyCotangent) -> ToyCotangent:
        return cotangent


def _step(x: int, k: int) -> int:
    return (x * x + k) % _MODULUS

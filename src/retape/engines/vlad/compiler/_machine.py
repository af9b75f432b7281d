"""Compiled code as a `Machine`.

The compiled code checks its step limit once in a block, so it stops at the beginning of
the block in which the limit lies. A capsule before step k is therefore a state at or
before step k, and the number of steps that remain until k. Which state that is depends
on k alone, not on where the run began; so the stages fit together exactly, and every
count is exact.
"""

from dataclasses import dataclass

from retape.engines.vlad.compiler._native import Native


class Handle:
    """A value of the runtime that lives as long as this object."""

    __slots__ = ("native", "number")

    def __init__(self, native: Native, number: int) -> None:
        self.native = native
        self.number = number

    def __del__(self) -> None:
        self.native.free(self.number)


@dataclass(frozen=True, slots=True)
class NativeCapsule:
    """A state before a step.

    Attributes:
        frame: The runtime's state; `None` if the program has ended.
        position: The step before which the capsule stands.
        left: How many steps the state lies before it.
        marks: How far the run had read and printed.
    """

    frame: Handle | None
    position: int
    left: int
    marks: tuple[int, int]


class NativeMachine:
    """The application that `checkpoint-*j` met, while the runtime waits for it."""

    def __init__(self, native: Native, start: int, seed: int, steps: int) -> None:
        self.native = native
        self.begin = start
        self.seed = seed
        self.steps = steps
        self.marks = native.marks()
        self.value: Handle | None = None
        self.peak_live = 0

    def length(self) -> int:
        return self.steps

    def start(self) -> NativeCapsule:
        copy = self.native.call("same", a=self.begin).r
        return NativeCapsule(Handle(self.native, copy), 0, 0, self.marks)

    def advance(self, capsule: NativeCapsule, steps: int) -> tuple[NativeCapsule, int]:
        made = min(steps, self.steps - capsule.position)
        if capsule.frame is None or made <= 0:
            return capsule, 0
        read, written = capsule.marks
        done = self.native.call(
            "advance", a=capsule.frame.number, b=made + capsule.left, e=read, f=written
        )
        frame = Handle(self.native, done.r) if done.r >= 0 else None
        position = capsule.position + made
        return NativeCapsule(frame, position, done.s, (done.t, done.u)), made

    def reverse(
        self, capsule: NativeCapsule, steps: int, cotangent: Handle | None
    ) -> Handle:
        assert capsule.frame is not None, "the end of a run has no stage after it"
        read, written = capsule.marks
        last = cotangent is None
        done = self.native.call(
            "stage",
            a=capsule.frame.number,
            b=steps + capsule.left,
            c=self.seed if cotangent is None else cotangent.number,
            d=int(last),
            e=read,
            f=written,
        )
        if last:
            self.value = Handle(self.native, done.s)
        return Handle(self.native, done.r)

    def nbytes(self, capsule: NativeCapsule) -> int:
        if capsule.frame is None:
            return 0
        return self.native.call("bytes", a=capsule.frame.number).r

    def finish(self, cotangent: Handle) -> int:
        """The handle, for the runtime, of the value and the argument's cotangent."""
        assert self.value is not None, "the last stage gave the value"
        done = self.native.call(
            "finish", a=self.value.number, b=cotangent.number, c=self.begin
        )
        return done.r

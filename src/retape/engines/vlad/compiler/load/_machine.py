"""Compiled code as a `Machine`.

The compiled code checks its step limit once in a block, so it stops at the beginning of
the block in which the limit lies. A capsule before step k is therefore a state at or
before step k, and the number of steps that remain until k. Which state that is depends
on k alone, not on where the run began; so the stages fit together exactly, and every
count is exact.
"""

from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from retape.engines.vlad.compiler.load._native import Native
from retape.plan._base import Plan


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

    def __init__(
        self, native: Native, start: int, seed: int, value: int, steps: int
    ) -> None:
        self.native = native
        self.begin = start
        self.seed = seed
        self.steps = steps
        self.marks = native.marks()
        self.value = Handle(native, native.call("same", a=value).r)

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
            "advance",
            a=capsule.frame.number,
            b=made + capsule.left,
            c=capsule.position - capsule.left,
            e=read,
            f=written,
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
        done = self.native.call(
            "finish", a=self.value.number, b=cotangent.number, c=self.begin
        )
        return done.r


_SAMPLE, _SAMPLE_BYTES, _MOST_TIMES = 250_000, 1 << 18, 4
"""What a stage's length goes by: the tape of so many steps, the bytes that it may have,
and how much longer than the least a stage may get."""


def by_density(machine: NativeMachine, least: int) -> int:
    """The least steps of a stage of typed code, more of them if they take little tape.

    A loop over two numbers puts a third of a byte on the tape for each step, one over
    arrays a byte.
    """
    taken = machine.native.call("density", a=machine.begin, b=_SAMPLE)
    most = _most_steps(machine, _ROW_BYTES, taken.s / max(1, taken.t))
    # A run stops at the beginning of a block, some steps before the last one.
    if taken.t < _SAMPLE // 2 or not taken.r:
        return min(least, most)
    times = max(1, min(_MOST_TIMES, _SAMPLE_BYTES // taken.r))
    return min(times * least, most)


_STAGE_BYTES = 16 << 20
"""Bytes that the arrays of a stage may take where nobody said how long it is: see
`runtime/state.h`. A product of matrices is one step, whatever its size."""

_ROW_BYTES, _NODE_BYTES = 16, 48
"""Bytes of an element that a stage makes: of typed code, and of the general way."""


def _most_steps(machine: NativeMachine, element: int, share: float = 0.0) -> int:
    """The steps whose arrays have room in a stage, by what the run made in all."""
    made = element * machine.native.made() / max(1, machine.length())
    return max(1, int(_STAGE_BYTES / max(made, share, 1e-9)))


def within_stage_bytes(plan: Plan, machine: NativeMachine) -> Plan:
    """A plan of the general way whose stages have room for the arrays they make."""
    stage = getattr(plan, "stage", None)
    most = _most_steps(machine, _NODE_BYTES)
    return plan if stage is None or stage <= most else replace(plan, stage=most)


_PROBES = (0.25, 0.5, 0.75)

_PROBE = 4_096
"""Steps that are taped to count their bytes, at some places of a run: few enough that
they do not take more than a small budget themselves."""


def counted_tape(machine: NativeMachine, most: int) -> int:
    """What taping a step of typed code takes: its share of the tape, and of the arrays
    that are made and kept until the stage ends.

    Where a run changes on its way, the dearest of four places counts.

    Args:
        machine: The run.
        most: What is said where none could be taped.
    """
    capsule, at = machine.start(), 0
    shares: list[int] = []
    for part in (0.0, *_PROBES):
        to = int(part * machine.length())
        capsule, _ = machine.advance(capsule, to - at)
        at = to
        if capsule.frame is None:
            break
        taken = machine.native.call("density", a=capsule.frame.number, b=_PROBE)
        if taken.t > 0:
            shares.append(-(-(taken.r + taken.s) // taken.t))
    return max(shares, default=most)


_STEPS_PER_WORD = {False: 4, True: 32}
"""Taping so many steps takes about as long as copying a word of a state: of the general
way, and of typed code (0.3 ns a step; 11 ns a word of a state that goes into a stage,
comes out of it, and is moved by collections)."""

_LARGE = 4_096
"""Words of a state below which its copies are not worth a longer stage."""


def with_least_stage(
    plan: Plan, machine: NativeMachine, least: int, tape_bytes: int
) -> Plan:
    """The plan, with stages of so many steps or more if it leaves their length open.

    Args:
        plan: The plan.
        machine: The run that is to be reversed.
        least: The steps; 0 to leave the plan as it is.
        tape_bytes: What taping a step takes.
    """
    if not least or getattr(plan, "stage", None) is not None:
        return plan
    nbytes = machine.nbytes(machine.start())
    alpha, _, _ = plan.resolve(machine.length(), nbytes, tape_bytes)
    return plan.with_stage(max(alpha, least))


def with_long_stages(
    plan: Plan, machine: NativeMachine, grown: int, *, typed: bool
) -> Plan:
    """The plan, with stages that take as long as the copies that they begin with.

    A stage copies the state that it begins from. Where the state grows with the run, as
    in a deep recursion, short stages would make the time quadratic.

    Args:
        plan: The plan.
        machine: The run that is to be reversed.
        grown: A bound of the words by which its state grows; states on the way are
            only measured if it is more than a stage's worth.
        typed: Whether its stages are of typed code.
    """
    per_word = _STEPS_PER_WORD[typed]
    stage = getattr(plan, "stage", None)
    if stage is None or machine.length() <= stage:
        return plan
    capsule, at = machine.start(), 0
    most = machine.nbytes(capsule) // 8
    if most + grown < _LARGE or per_word * (most + grown) <= stage:
        return plan
    for part in _PROBES:
        to = int(part * machine.length())
        capsule, _ = machine.advance(capsule, to - at)
        most, at = max(most, machine.nbytes(capsule) // 8), to
    if most < _LARGE or per_word * most <= stage:
        return plan
    room = _most_steps(machine, _ROW_BYTES if typed else _NODE_BYTES)
    return replace(plan, stage=max(stage, min(per_word * most, room)))


class KeptNativeMachine(NativeMachine):
    """The same, with cotangents and capsules that can be kept on disk."""

    def reverse(self, capsule: NativeCapsule, steps: int, cotangent: Any | None) -> Any:
        given = None
        if cotangent is not None:
            given = Handle(self.native, self.native.unpack(cotangent))
        made = super().reverse(capsule, steps, given)
        return self.native.pack(made.number)

    def finish(self, cotangent: Any) -> int:
        return super().finish(Handle(self.native, self.native.unpack(cotangent)))

    def pack(self, capsule: NativeCapsule) -> dict[str, Any]:
        """A capsule as a tree of arrays."""
        frame = capsule.frame
        return {
            "image": None if frame is None else self.native.pack(frame.number),
            "place": [capsule.position, capsule.left, *capsule.marks],
        }

    def unpack(self, tree: dict[str, Any]) -> NativeCapsule:
        """The inverse of `pack`."""
        position, left, read, written = tree["place"]
        words = tree["image"]
        frame = None
        if words is not None:
            frame = Handle(self.native, self.native.unpack(words))
        return NativeCapsule(frame, position, left, (read, written))

    def label(self) -> str:
        """The identity of the run: the program, the first state, the cotangent."""
        total = blake2b(self.native.compiled.text.encode(), digest_size=16)
        for handle in (self.begin, self.seed):
            total.update(self._digestible(handle))
        return f"compiled {total.hexdigest()}"

    def _digestible(self, handle: int) -> bytes:
        """A value's image; one that is no object is put into one first."""
        pair = self.native.call("paired", a=handle).r
        words = self.native.pack(pair)
        self.native.free(pair)
        return words.tobytes()

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


class FrozenNativeMachine(NativeMachine):
    """The same under a budget: snapshots are images, whose bytes are exact."""

    def to_store(self, tree: Any) -> Any:
        """A capsule that no collection copies."""
        if not isinstance(tree, NativeCapsule) or tree.frame is None:
            return tree
        image = self.native.call("freeze", a=tree.frame.number).r
        return replace(tree, frame=Handle(self.native, image))


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
        total = blake2b(self.native.compiled.whole.text.encode(), digest_size=16)
        for handle in (self.begin, self.seed):
            total.update(self.native.pack(handle).tobytes())
        return f"compiled {total.hexdigest()}"

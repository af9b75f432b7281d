"""One value that a gradient keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from retape._bytes import format_bytes

Why = Literal[
    "argument", "view", "constant", "value", "carry", "snapshot", "tape", "held"
]
THERE_ANYWAY = ("argument", "view", "constant")


@dataclass(frozen=True, slots=True)
class SavedValue:
    """Something that a gradient keeps until it is used on the way back.

    Attributes:
        why: `"argument"` or `"constant"`, which are there anyway, and `"view"` of one,
            which the compiler may copy; `"value"`, computed; `"carry"` of a loop, for
            each of its trips; under a plan `"snapshot"`, `"tape"` of a stage, and
            `"held"` once for the whole sweep.
        type: Type and shape, such as `f32[8,16]`.
        nbytes: Bytes of all of it.
        source: The argument's name, or the operation.
        line: The line of the program that made it, if it is known.
        name: What `checkpoint_name` called it.
    """

    why: Why
    type: str
    nbytes: int
    source: str
    line: str = ""
    name: str | None = None

    def __str__(self) -> str:
        named = "" if self.name is None else f", named {self.name!r}"
        line = f" at {self.line}" if self.line else ""
        size, text = format_bytes(self.nbytes), f"{self.why} {self.source}"
        return f"{size:>10}  {self.type:16} {text}{named}{line}"

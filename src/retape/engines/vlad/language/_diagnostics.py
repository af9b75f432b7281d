"""Places in a program's text, and errors that point at them.

A `Source` is a text with a name, a `Where` a place in it. Every message about a
program ends in `fault(...)`, which gives it the form of a compiler's message:

    square.vlad:1:20: `y` is not bound here; define it above, or bind it with `let`
      (define (f x) (* x y))
                         ^
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from retape._errors import LanguageError


@dataclass(frozen=True, eq=False)
class Source:
    """A program's text, and the name it is called by in messages."""

    name: str
    text: str = field(repr=False)

    @cached_property
    def line_starts(self) -> list[int]:
        starts = [0]
        starts.extend(i + 1 for i, c in enumerate(self.text) if c == "\n")
        return starts


@dataclass(frozen=True, slots=True)
class Where:
    """A place in a source: an offset from which line and column are computed."""

    source: Source = field(repr=False)
    offset: int

    @property
    def line(self) -> int:
        return bisect_right(self.source.line_starts, self.offset)

    @property
    def column(self) -> int:
        return self.offset - self.source.line_starts[self.line - 1] + 1

    def __str__(self) -> str:
        return f"{self.source.name}:{self.line}:{self.column}"

    def excerpt(self) -> str:
        """The line, and a caret below the place."""
        start = self.source.line_starts[self.line - 1]
        text = self.source.text[start:].split("\n", 1)[0]
        window = max(0, self.column - 60)
        shown = text[window : window + 100].replace("\t", " ")
        return f"  {shown}\n  {' ' * (self.column - 1 - window)}^"


class VladError(LanguageError):
    """A VLAD program that is wrong.

    Attributes:
        message: What is wrong, without the place.
        where: The place, or `None` for a fault of no particular one.
        chain: The places of the calls under way, the innermost first.
    """

    def __init__(
        self, message: str, where: Where | None, chain: Sequence[Where] = ()
    ) -> None:
        self.message = message
        self.where = where
        self.chain = tuple(chain)
        super().__init__(self._text())

    def __reduce__(self) -> tuple[Any, ...]:
        """What it was made of: a worker that cannot send its error ends the pool."""
        return type(self), (self.message, self.where, self.chain), self.__dict__

    def _text(self) -> str:
        if self.where is None:
            return self.message
        lines = [f"{self.where}: {self.message}", self.where.excerpt()]
        lines.extend(f"  called from {where}" for where in self.chain[:8])
        if len(self.chain) > 8:
            lines.append(f"  and {len(self.chain) - 8} more")
        return "\n".join(lines)


class ReadError(VladError):
    """Text that is no sequence of expressions."""


class SyntaxFault(VladError):
    """An expression that is no program."""


class TooLong(VladError):
    """A program that the passes, which recurse through it, cannot go through."""


class RunError(VladError):
    """A program that went wrong while it ran."""


class GaveUp(Exception):
    """Typed code cannot do a run, which boxed code begins again."""

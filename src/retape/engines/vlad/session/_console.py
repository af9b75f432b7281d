"""Source, input and output of a program."""

import io
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

from retape._errors import LanguageError
from retape.engines.vlad.language._diagnostics import RunError, Source
from retape.engines.vlad.language._program import load
from retape.engines.vlad.language._reader import to_number

Input = str | Iterable[float] | TextIO | None
"""Where `read-real` reads: text, numbers, a stream, or nothing."""


class Console:
    """The input and output of a run."""

    def __init__(self, read: Callable[[], float | None], out: TextIO | None) -> None:
        self.read = read
        self._out = out
        self._lines: list[str] = []

    def write(self, line: str) -> None:
        self._lines.append(line + "\n")
        if self._out is not None:
            self._out.write(printable(line, self._out) + "\n")

    def text(self) -> str:
        return "".join(self._lines)


def printable(text: str, out: TextIO) -> str:
    """A text with escapes for the letters that a stream's encoding lacks."""
    encoding = getattr(out, "encoding", None)
    if encoding is None:
        return text
    return text.encode(encoding, "backslashreplace").decode(encoding)


def source_of(program: str | Path) -> Source:
    """A program's source: a path's, or a text's own."""
    if not isinstance(program, str | Path):
        raise LanguageError(
            f"`{program!r}` is not a program. Pass the text of one, or the path of a "
            "`.vlad` file."
        )
    if isinstance(program, Path) or program.endswith(".vlad"):
        return load(program)
    return Source("program", program)


def reader(stdin: Input) -> Callable[[], float | None]:
    """A function that gives the next real of an input."""
    if stdin is None:
        numbers: Iterator[float] = iter(())
    elif isinstance(stdin, str):
        numbers = _numbers(io.StringIO(stdin))
    elif hasattr(stdin, "read"):
        numbers = _numbers(stdin)
    else:
        numbers = (float(x) for x in stdin)
    return lambda: next(numbers, None)


def _numbers(stream: Any) -> Iterator[float]:
    if hasattr(stream, "isatty") and stream.isatty():
        print(
            "The program reads numbers: type them, in one line or in several.",
            file=sys.stderr,
            flush=True,
        )
    for line in stream:
        for word in line.split():
            number = to_number(word)
            if number is None:
                raise RunError(
                    f"`read-real` read `{word[:40]}`, which is not a number; correct "
                    "the "
                    "input",
                    None,
                )
            yield number

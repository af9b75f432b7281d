"""Find the line of a function at which a value is spoilt, by running it line by line.

Python tells a tracer of each line that it is about to run. What the line before it has
stored or worked on is looked at then:

    d = 1 / x            d is infinite: this line, this variable
    return d * g

Lines of other packages are not looked at: their call is. A function that is no Python,
or compiled, is named by the line where it is defined, if there is one.
"""

from __future__ import annotations

import dis
import linecache
import sys
import sysconfig
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from retape._errors import RetapeError
from retape._reads import unwrapped

_OWN = str(Path(__file__).resolve().parents[1])
_LIBRARIES = (_OWN, *(sysconfig.get_path(p) for p in ("stdlib", "purelib", "platlib")))


@dataclass(frozen=True, slots=True)
class Blamed:
    """A line of a program, and the variable that is spoilt there.

    Attributes:
        line: `file:line (function)`, or empty.
        text: The source.
        variable: Its name; "the result" if the line returns it.
    """

    line: str
    text: str
    variable: str


def blame(
    function: Callable[..., Any], args: tuple[Any, ...], spoils: Callable[[Any], bool]
) -> Blamed:
    """The first line at which a function makes a value that is spoilt.

    Args:
        function: A function.
        args: Its arguments, which it may overwrite.
        spoils: Tells it of a value; a `RetapeError` says that it cannot be told.
    """
    search = _Search(spoils)
    usual = sys.gettrace()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they were shown when it ran the first time
        sys.settrace(search.called)
        try:
            function(*args)
        finally:
            sys.settrace(usual)
    return search.found or _definition(function)


@dataclass(slots=True)
class _Search:
    """A tracer: what it was asked for, and the place that it found."""

    spoils: Callable[[Any], bool]
    found: Blamed | None = None
    names: dict[CodeType, dict[int, set[str]]] = field(
        default_factory=dict[CodeType, "dict[int, set[str]]"]
    )

    def called(self, frame: FrameType, event: str, arg: Any) -> Any:
        """Follow a function of the user's, and no other one."""
        del event, arg
        name = frame.f_code.co_filename
        if name.startswith(("<frozen", "<__array", *_LIBRARIES)):
            return None
        before = {n: self.spoilt(v) for n, v in frame.f_locals.items()}
        return _Followed(self, before).event

    def spoilt(self, value: Any) -> dict[str, Any]:
        """What of a value is spoilt: all of it (""), or an object's attributes."""
        # A sentinel such as `best = inf` is none of the values; a number of NumPy's,
        # which is a `float`, too, was computed.
        if type(value) is float and value in (float("inf"), float("-inf")):
            return {}
        try:
            return {"": value} if self.spoils(value) else {}
        except (RetapeError, RecursionError):
            parts: dict[str, Any] = getattr(value, "__dict__", {})
            return {f".{name}": v for name, v in parts.items() if self._is_bad_part(v)}

    def _is_bad_part(self, value: Any) -> bool:
        try:
            return self.spoils(value)
        except (RetapeError, RecursionError):
            return False

    def names_of(self, code: CodeType, line: int) -> set[str]:
        """The variables that a line stores or works on."""
        if code not in self.names:
            found: dict[int, set[str]] = {}
            for each in dis.get_instructions(code):
                if "FAST" in each.opname or "DEREF" in each.opname:
                    at = (each.positions and each.positions.lineno) or 0
                    # From Python 3.13 one instruction may load two.
                    two = isinstance(each.argval, tuple)
                    names = each.argval if two else (each.argval,)
                    found.setdefault(at, set()).update(map(str, names))
            self.names[code] = found
        return self.names[code].get(line, set())


@dataclass(slots=True)
class _Followed:
    """A call of a user's function, from line to line."""

    search: _Search
    before: dict[str, dict[str, Any]]
    line: int = 0

    def event(self, frame: FrameType, event: str, arg: Any) -> Any:
        """Look at what the line before made."""
        if self.search.found is not None or event == "exception":
            return self.event
        if self.line:
            self._look(frame)
        if event == "return" and self.search.found is None and arg is not None:
            known = any(arg is v for bad in self.before.values() for v in bad.values())
            if not known and self.search.spoilt(arg):
                self.search.found = _place(frame, frame.f_lineno, "the result")
        self.line = frame.f_lineno
        return self.event

    def _look(self, frame: FrameType) -> None:
        values = frame.f_locals
        for name in sorted(self.search.names_of(frame.f_code, self.line)):
            known = self.before.get(name, {})
            for part, value in self.search.spoilt(values.get(name)).items():
                if value is not known.get(part, self):
                    self.search.found = _place(frame, self.line, name + part)
                    return


def _place(frame: FrameType, line: int, variable: str) -> Blamed:
    code = frame.f_code
    text = linecache.getline(code.co_filename, line, frame.f_globals).strip()
    return Blamed(f"{code.co_filename}:{line} ({code.co_name})", text, variable)


def _definition(function: Callable[..., Any]) -> Blamed:
    """Where a function is defined, if that is known."""
    code = getattr(unwrapped(function), "__code__", None)
    if not isinstance(code, CodeType):
        return Blamed("", "", "")
    line = code.co_firstlineno
    text = linecache.getline(code.co_filename, line).strip()
    return Blamed(f"{code.co_filename}:{line} ({code.co_name})", text, "")

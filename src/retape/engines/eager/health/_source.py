"""Lines of the user's program, among those of PyTorch and of this library."""

from __future__ import annotations

import linecache
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

import torch

_FOLDERS = Path(torch.__file__).parent, Path(__file__).parents[3]
_LIBRARIES = tuple(f"{each}/" for f in _FOLDERS for each in (f, f.resolve()))
_FRAME = re.compile(r'\s*File "(.*)", line (\d+), in (.*)')
_TRACEBACK = "traceback_"
"""The key under which autograd keeps the lines that led to a node, when asked to."""


class Line(NamedTuple):
    """A line of a program: `file:line (function)`, and its text."""

    line: str
    text: str


def line_of(node: Any) -> Line:
    """Where the program called the operator of a node, made while autograd noted it."""
    frames = (_FRAME.match(each) for each in reversed(node.metadata[_TRACEBACK]))
    for frame in frames:
        if frame and not _is_of_library(frame[1]):
            return _line(frame[1], int(frame[2]), frame[3])
    return Line("", "")


def calling_line() -> Line:
    """Where the program called the operator that runs."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not _is_of_library(code.co_filename):
            return _line(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back
    return Line("", "")


def _is_of_library(path: str) -> bool:
    return path.startswith(("<frozen", *_LIBRARIES))


def _line(path: str, number: int, function: str) -> Line:
    text = linecache.getline(path, number).strip()
    return Line(f"{path}:{number} ({function})", text)

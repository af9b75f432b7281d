"""Where the operators of a program come from: its lines, and its modules.

Lines of the user's program stand among those of PyTorch and of this library; modules
are noted while the program runs.
"""

from __future__ import annotations

import linecache
import re
from contextlib import ExitStack
from inspect import currentframe
from pathlib import Path
from traceback import walk_stack
from typing import Any, NamedTuple

import torch
from torch.nn import Module
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.utils._pytree import tree_leaves

from retape.engines.eager.health._graph import is_of_leaf, number

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
    for frame, at in walk_stack(currentframe()):
        code = frame.f_code
        if not _is_of_library(code.co_filename):
            return _line(code.co_filename, at, code.co_name)
    return Line("", "")


def _is_of_library(path: str) -> bool:
    return path.startswith(("<frozen", *_LIBRARIES))


def _line(path: str, number: int, function: str) -> Line:
    text = linecache.getline(path, number).strip()
    return Line(f"{path}:{number} ({function})", text)


_KEY = "retape_module"


class Modules:
    """A context in which each node of autograd's graph learns its innermost module.

    When a module is done, the nodes that its results were made by, after what it was
    given, are its own, unless a module inside of it took them already.
    """

    def __init__(self) -> None:
        self._open: list[tuple[Module, int]] = []
        self._hooks = ExitStack()

    def __enter__(self) -> Modules:
        before = register_module_forward_pre_hook(self._enter_module)
        after = register_module_forward_hook(self._leave_module, always_call=True)
        self._hooks.callback(before.remove)
        self._hooks.callback(after.remove)
        return self

    def __exit__(self, *exception: Any) -> None:
        self._hooks.close()

    def current(self) -> str:
        """The path of the innermost module that runs."""
        if not self._open:
            return ""
        root, inner = self._open[0][0], self._open[-1][0]
        path = next((name for name, m in root.named_modules() if m is inner), "")
        kind = type(inner).__name__
        return f"{path} ({kind})" if path else kind

    def _enter_module(self, module: Module, args: Any) -> None:
        nodes = (getattr(leaf, "grad_fn", None) for leaf in tree_leaves(args))
        numbers = [number(node) for node in nodes if node is not None]
        self._open.append((module, max(numbers, default=-1)))

    def _leave_module(self, module: Module, args: Any, output: Any) -> None:
        del args
        path, (_, first) = self.current(), self._open.pop()
        waiting = [getattr(leaf, "grad_fn", None) for leaf in tree_leaves(output)]
        while waiting:
            node: Any = waiting.pop()
            if node is None or is_of_leaf(node) or number(node) <= first:
                continue
            if _KEY not in node.metadata:
                node.metadata[_KEY] = path
                waiting += [before for before, _ in node.next_functions]


def module_of(node: Any) -> str:
    """The path of the module that made a node, and its class; empty if none did."""
    return node.metadata.get(_KEY, "")

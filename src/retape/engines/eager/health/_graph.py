"""Autograd's graph: its operators in their order, and where they come from.

Lines of the user's program stand among those of PyTorch and of this library; modules
are noted while the program runs.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from inspect import currentframe
from math import inf, isfinite
from pathlib import Path
from traceback import walk_stack
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.utils._pytree import tree_leaves

Grads = Sequence[Tensor | None]

_FUNCTIONS: Any = vars(torch._C)["_functions"]


def operators(value: Tensor) -> tuple[list[Any], list[Tensor]]:
    """The nodes that lead to a value, first one first, and the leaves that it is of.

    Autograd numbers nodes as they are made, and goes back by those numbers.
    """
    seen, found, leaves = {value.grad_fn}, list[Any](), list[Tensor]()
    waiting = [value.grad_fn]
    while waiting:
        node: Any = waiting.pop()
        if is_of_leaf(node):
            leaves.append(node.variable)
            continue
        found.append(node)
        for before, _ in node.next_functions:
            if before is not None and before not in seen:
                seen.add(before)
                waiting.append(before)
    found.sort(key=number)
    return found, leaves


def is_of_leaf(node: Any) -> bool:
    """Tell whether a node adds to the gradient of a leaf."""
    # Not by `variable`: a function of the user's may keep something of that name.
    return type(node) is _FUNCTIONS.AccumulateGrad


def number(node: Any) -> int:
    """The place of a node in the order in which autograd made them."""
    return node._sequence_nr()


def sizes(grads: Iterable[Tensor | None]) -> list[Tensor]:
    """The least and the largest number of each tensor, on its device: nobody waits."""
    counted = (g.detach() for g in grads if g is not None and _counts(g))
    return [size for grad in counted for size in _extremes(grad)]


def largest(found: Iterable[Tensor]) -> float:
    """The largest magnitude among some sizes; infinity if one is not finite."""
    most = 0.0
    for each in found:
        size = abs(float(each))
        if not isfinite(size):
            return inf
        most = max(most, size)
    return most


def watch(nodes: Sequence[Any], per: int) -> list[list[Any]]:
    """Note how large cotangents of every `per`-th operator's results are.

    Returns:
        Pairs of the least and the largest number, to be filled by a backward.
    """
    rows: list[list[Any]] = [[] for _ in range(0, len(nodes), per)]

    def note(row: list[Any]) -> Callable[[Any], None]:
        def hook(grads: Any) -> None:
            # Whether they are large is asked afterwards: nobody waits for a device.
            row.append(sizes(grads))

        return hook

    for row, node in zip(rows, nodes[::per], strict=True):
        node.register_prehook(note(row))
    return rows


def _counts(grad: Tensor) -> bool:
    return grad.numel() > 0 and (grad.is_floating_point() or grad.is_complex())


def _extremes(grad: Tensor) -> Sequence[Tensor]:
    if grad.layout is not torch.strided:
        grad = grad.coalesce().values() if grad.is_sparse else grad.to_dense()
    # A vector norm of order infinity takes a hundred times as long on a CPU.
    return [grad.abs().max()] if grad.is_complex() else torch.aminmax(grad)


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

"""Autograd's graph: its operators in their order, and where they come from.

Autograd counts the operators of a thread as it makes their nodes, and notes the lines
that led to each when asked to. Which module one is in is told by that count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

Grads = Sequence[Tensor | None]
made_so_far = vars(torch._C)["_autograd"]._get_sequence_nr


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
    return node is not None and node.name() == "torch::autograd::AccumulateGrad"


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


def _counts(grad: Tensor) -> bool:
    return grad.numel() > 0 and (grad.is_floating_point() or grad.is_complex())


def _extremes(grad: Tensor) -> Sequence[Tensor]:
    if grad.layout is not torch.strided:
        grad = grad.coalesce().values() if grad.is_sparse else grad.to_dense()
    # A vector norm of order infinity takes a hundred times as long on a CPU.
    return [grad.abs().max()] if grad.is_complex() else torch.aminmax(grad)


_FOLDERS = Path(torch.__file__).parent, Path(__file__).parents[3]
_LIBRARIES = tuple(f"{each}/" for f in _FOLDERS for each in (f, f.resolve()))
_FRAME = re.compile(r'\s*File "(.*)", line (\d+), in (.*)\n\s*(.*)')


class Line(NamedTuple):
    """A line of a program: `file:line (function)`, and its text."""

    line: str
    text: str


def program_line(frames: Sequence[str]) -> Line:
    """The innermost line that is the program's, of what `format_stack` gives.

    Autograd keeps that for each node, among those of PyTorch and of this library.
    """
    for frame in map(_FRAME.match, reversed(frames)):
        if frame and not frame[1].startswith(("<frozen", *_LIBRARIES)):
            return Line(f"{frame[1]}:{frame[2]} ({frame[3]})", frame[4])
    return Line("", "")


@dataclass(slots=True)
class _ModuleCall:
    """A call of a module's, and how many nodes there were before it and after it."""

    module: Module
    root: Module
    start: int
    stop: float = inf


class Modules:
    """A context that notes which nodes of autograd's are made in calls of modules."""

    def __init__(self) -> None:
        self._calls: list[_ModuleCall] = []
        self._open: list[_ModuleCall] = []
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
        """The path of the innermost module that runs, and its class; empty if none."""
        return _path(self._open[-1:])

    def around(self, number: int) -> str:
        """The same of the one that made a node."""
        # The innermost one was begun last.
        return _path([c for c in self._calls if c.start <= number < c.stop][-1:])

    def _enter_module(self, module: Module, args: Any) -> None:
        del args
        root = self._open[0].module if self._open else module
        self._calls.append(_ModuleCall(module, root, made_so_far()))
        self._open.append(self._calls[-1])

    def _leave_module(self, module: Module, args: Any, output: Any) -> None:
        del module, args, output
        self._open.pop().stop = made_so_far()


def _path(calls: Sequence[_ModuleCall]) -> str:
    for call in calls:
        kind, names = type(call.module).__name__, call.root.named_modules()
        path = next((name for name, each in names if each is call.module), "")
        return f"{path} ({kind})" if path else kind
    return ""

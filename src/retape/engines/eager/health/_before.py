"""The state of a program's surroundings, so that it can be run twice alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.utils._pytree import tree_leaves


class Before:
    """Random states and the buffers of modules, before a call.

    Args:
        function: That is called: a module, a method of one, or a function that reads
            modules by closure.
        args: Its arguments.
    """

    def __init__(self, function: Any, args: Any) -> None:
        self._state = torch.get_rng_state()
        cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
        self._cuda = torch.cuda.get_rng_state_all() if cuda else None
        self._buffers: dict[Tensor, Tensor] = {
            buffer: buffer.detach().clone()
            for module in set(_modules(function, args))
            for buffer in module.buffers()
        }

    def restore(self) -> None:
        """Put all of them back."""
        torch.set_rng_state(self._state)
        if self._cuda is not None:
            torch.cuda.set_rng_state_all(self._cuda)
        with torch.no_grad():
            for buffer, value in self._buffers.items():
                buffer.copy_(value)


def _modules(function: Any, args: Any) -> Iterator[Module]:
    cells = getattr(function, "__closure__", None) or ()
    read = [cell.cell_contents for cell in cells if _is_full(cell)]
    names = getattr(getattr(function, "__code__", None), "co_names", ())
    known: dict[str, Any] = getattr(function, "__globals__", {})
    read += [known[name] for name in names if name in known]
    read += [function, getattr(function, "__self__", None), *tree_leaves(args)]
    yield from (each for each in read if isinstance(each, Module))


def _is_full(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False

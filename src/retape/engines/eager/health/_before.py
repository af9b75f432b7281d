"""The state of a program's surroundings, so that it can be run twice alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.utils._pytree import tree_leaves

from retape._reads import closure_of, globals_of


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
    read = [*closure_of(function).values(), *globals_of(function).values()]
    read += [function, getattr(function, "__self__", None), *tree_leaves(args)]
    yield from (each for each in read if isinstance(each, Module))

"""What PyTorch does without an operator, and is seen by replacing a function of it.

Each is replaced while any thread records, and in threads that record nothing it does
what it did. Recordings of several threads end in any order: the first one makes the
change, and the last one undoes it.

- Transforms of `torch.func` let nobody save tensors for their backward
  (`disable_saved_tensors_hooks`), and raise an error where somebody does. So while one
  of them is at work nothing is saved through handles: its operators are recorded, and
  what autograd saves of them is kept.
- NumPy, and whoever is given memory by DLPack, write without an operator. So the value
  is noted when it is handed over, and each later read compares: what has changed
  meanwhile is from then on an input of the program, which cannot be recomputed, and no
  longer the result of an operator.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from threading import Lock
from typing import Any

import torch

from retape.engines.eager._function_levels import without_hooks

Undo = Callable[[], object]
_WAYS_OUT = ("numpy", "__dlpack__")


class SharedChange:
    """One change to the process, for as long as any of its blocks is open.

    Args:
        change: Makes it, from what the first block is given, and returns what undoes
            it.

    Examples:
        >>> found = []
        >>> change = SharedChange(lambda: found.append(1) or found.clear)
        >>> with change.made(), change.made():
        ...     found
        [1]
        >>> found
        []
    """

    def __init__(self, change: Callable[..., Undo]) -> None:
        self._change, self._lock, self._open = change, Lock(), 0
        self._undo: Undo | None = None

    @contextmanager
    def made(self, *given: Any) -> Iterator[None]:
        """Have it made from here to the end of the block."""
        with self._lock:
            if self._open == 0:
                self._undo = self._change(*given)
            self._open += 1
        try:
            yield
        finally:
            with self._lock:
                self._open -= 1
                if self._open == 0 and self._undo is not None:
                    self._undo()


def replace(owner: Any, name: str, make: Callable[[Any], Any]) -> Undo:
    """Put something made of an attribute in its place; what puts it back.

    Examples:
        >>> class Owner(dict): ...
        >>> undo = replace(Owner, "get", lambda usual: lambda self, key: 7)
        >>> Owner().get("key")
        7
        >>> undo()
        >>> Owner().get("key")
    """
    usual, inherited = getattr(owner, name), name not in vars(owner)
    setattr(owner, name, make(usual))
    if inherited:
        return partial(delattr, owner, name)
    return partial(setattr, owner, name, usual)


@contextmanager
def what_has_no_operator(recorder: Callable[[], Any]) -> Iterator[None]:
    """Have all of it seen, or left out, inside of the block.

    Args:
        recorder: Gives the recorder of the thread that calls, if that has one; it is
            told of tensors whose memory is handed out.
    """
    with _transforms.made(recorder), _ways_out.made(recorder):
        yield


def _without_handles(recorder: Callable[[], Any]) -> Undo:
    def make(usual: Any) -> Any:
        @contextmanager
        def replaced(message: str) -> Iterator[None]:
            aside = nullcontext() if recorder() is None else without_hooks()
            with aside, usual(message):
                yield

        return replaced

    return replace(torch.autograd.graph, "disable_saved_tensors_hooks", make)


def _noted(recorder: Callable[[], Any]) -> Undo:
    def make(usual: Any) -> Any:
        def shared(tensor: torch.Tensor, *args: Any, **named: Any) -> Any:
            made = usual(tensor, *args, **named)
            if (present := recorder()) is not None:
                present.hand_out(tensor)
            return made

        return shared

    undone = [replace(torch.Tensor, name, make) for name in _WAYS_OUT]
    return lambda: [undo() for undo in undone]


_transforms = SharedChange(_without_handles)
_ways_out = SharedChange(_noted)

"""Values that a program hands to NumPy, or to others by DLPack, while it is recorded.

These write without an operator. So the value is noted when it is handed over, and each
later read compares: what has changed meanwhile is from then on an input of the program,
which cannot be recomputed, and no longer the result of an operator.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

_WAYS_OUT = ("numpy", "__dlpack__")
_ways_lock = threading.Lock()
_watchers = 0


@contextmanager
def shared_memory_is_seen(note: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """Have `note` told of each tensor whose memory is handed out.

    Both ways are methods of `Tensor`, which are replaced meanwhile; `note` is asked in
    every thread.
    """
    _told.append(note)
    _watch_ways_out(+1)
    try:
        yield
    finally:
        _watch_ways_out(-1)
        _told.remove(note)


_told: list[Callable[[torch.Tensor], None]] = []


def _watch_ways_out(by: int) -> None:
    global _watchers
    with _ways_lock:
        if _watchers == 0:
            for name in _WAYS_OUT:
                setattr(torch.Tensor, name, _noting(_unwatched[name]))
        _watchers += by
        if _watchers == 0:
            for name in _WAYS_OUT:
                _put_back(name)


def _put_back(name: str) -> None:
    if name in _overridden:
        setattr(torch.Tensor, name, _unwatched[name])
    else:
        delattr(torch.Tensor, name)


_overridden = frozenset(name for name in _WAYS_OUT if name in vars(torch.Tensor))
_unwatched: dict[str, Any] = {name: getattr(torch.Tensor, name) for name in _WAYS_OUT}


def _noting(original: Any) -> Any:
    def shared(tensor: torch.Tensor, *args: Any, **named: Any) -> Any:
        made = original(tensor, *args, **named)
        for note in tuple(_told):
            note(tensor)
        return made

    return shared

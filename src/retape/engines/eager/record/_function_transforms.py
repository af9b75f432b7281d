"""`torch.func.grad`, `vjp` and `hessian` inside a recording.

They let nobody save tensors for their backward (`disable_saved_tensors_hooks`), and
raise an error where somebody does. So while one of them is at work nothing is saved
through handles: its operators are recorded, and what autograd saves of them is kept.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from retape.engines.eager._saved_hooks import without_hooks

_switch_lock = threading.Lock()
_recordings = 0
_original: Any = None


@contextmanager
def transforms_without_handles(is_recording: Callable[[], bool]) -> Iterator[None]:
    """Let transforms inside do without the hooks that save handles.

    PyTorch asks for that by a function of a module, which is replaced meanwhile; in
    threads that record nothing it does what it did.
    """
    _switch(+1, is_recording)
    try:
        yield
    finally:
        _switch(-1, is_recording)


def _switch(by: int, is_recording: Callable[[], bool]) -> None:
    global _recordings, _original
    graph = torch.autograd.graph
    with _switch_lock:
        if _recordings == 0:
            _original = graph.disable_saved_tensors_hooks
            graph.disable_saved_tensors_hooks = _replacement(_original, is_recording)
        _recordings += by
        if _recordings == 0:
            graph.disable_saved_tensors_hooks = _original


def _replacement(original: Any, is_recording: Callable[[], bool]) -> Any:
    @contextmanager
    def replaced(message: str) -> Iterator[None]:
        with without_hooks() if is_recording() else nullcontext(), original(message):
            yield

    return replaced

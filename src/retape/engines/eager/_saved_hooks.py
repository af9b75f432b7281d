"""This thread's hooks on what autograd saves: asked about, taken off, refused."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def _autograd() -> Any:
    """PyTorch's own stack of hooks, which its stubs leave out."""
    return vars(torch._C)["_autograd"]


def hooks_are_on() -> bool:
    """Tell whether something is called for each tensor that this thread saves."""
    return _refused() is None and _top() is not None


def _top() -> Any:
    return _autograd()._top_saved_tensors_default_hooks(False)


def _refused() -> str | None:
    """Why nobody may put hooks on in this thread; `None` if everybody may."""
    return _autograd()._saved_tensors_hooks_get_disabled_error_message()


@contextmanager
def without_hooks() -> Iterator[None]:
    """Take this thread's hooks for saved tensors off, and put them back at the end."""
    hooks = _pop_all()
    try:
        yield
    finally:
        for pack, unpack in reversed(hooks):
            _autograd()._push_saved_tensors_default_hooks(pack, unpack)


@contextmanager
def hooks_are_allowed() -> Iterator[None]:
    """Let hooks be put on inside, also where a transform allows nobody to."""
    module, message = _autograd(), _refused()
    if message is None:
        yield
        return
    module._saved_tensors_hooks_enable()
    try:
        yield
    finally:
        module._saved_tensors_hooks_disable(message)


@contextmanager
def hooks_are_refused(why: str) -> Iterator[None]:
    """Let nobody put hooks on inside; PyTorch raises a `RuntimeError` of this text."""
    with without_hooks(), torch.autograd.graph.disable_saved_tensors_hooks(why):
        yield


def _pop_all() -> list[tuple[Any, Any]]:
    """Take all hooks off this thread's stack, the topmost first."""
    found: list[tuple[Any, Any]] = []
    while hooks_are_on():  # none are where a transform further out refuses them
        hooks = _top()
        _autograd()._pop_saved_tensors_default_hooks()
        found.append(hooks)
    return found

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
    module = _autograd()
    enabled = module._saved_tensors_hooks_is_enabled()
    return enabled and module._top_saved_tensors_default_hooks(False) is not None


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
    module = _autograd()
    message = module._saved_tensors_hooks_get_disabled_error_message()
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
    module = _autograd()
    found: list[tuple[Any, Any]] = []
    if not module._saved_tensors_hooks_is_enabled():  # of a transform further out
        return found
    while (hooks := module._top_saved_tensors_default_hooks(False)) is not None:
        module._pop_saved_tensors_default_hooks()
        found.append(hooks)
    return found

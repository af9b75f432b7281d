"""Doing without the recorder for a while: its mode and its hooks see nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import (
    _disable_current_modes,
    _get_dispatch_stack_at,
    _pop_mode,
    _push_mode,
)

from retape.engines.eager.record._dispatch_mode import Recorder
from retape.engines.eager.record._function_transforms import without_hooks


@contextmanager
def unseen() -> Iterator[None]:
    """Let the compiler work: its tensors are none of the program's."""
    with without_hooks(), _disable_current_modes():
        yield


@contextmanager
def off_the_stack(recorder: Recorder) -> Iterator[None]:
    """Run operators that other modes see and the recorder does not."""
    depth = torch._C._len_torch_dispatch_stack()
    modes = [_get_dispatch_stack_at(k) for k in range(depth)]
    if recorder not in modes:
        yield
        return
    place = modes.index(recorder)
    _take_off(depth - place)
    _put_on(modes[place + 1 :])
    try:
        yield
    finally:
        _take_off(depth - place - 1)
        _put_on(modes[place:])


def _take_off(count: int) -> None:
    for _ in range(count):
        _pop_mode()


def _put_on(modes: list[Any]) -> None:
    for mode in modes:
        _push_mode(mode)

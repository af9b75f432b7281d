"""From a saved object back to its tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from retape.engines.eager._wrapper_tensors import SavedWhole, SavedWrapper
from retape.engines.eager.record._dispatch_mode import active_recorder, paused_recording
from retape.engines.eager.trace._geometry import tensor_on
from retape.engines.eager.trace._inputs import Input, checked
from retape.engines.eager.trace._run import ForeignView, Handle, ReceivedHandle


def unpack(saved: Any) -> Tensor:
    """The tensor that a saved object stands for."""
    if active_recorder() is None:
        return _value(saved)
    with paused_recording():
        return _value(saved)


def _value(saved: Any) -> Tensor:
    if saved.__class__ is Input:
        return checked(saved)
    if saved.__class__ is ForeignView:
        return saved.value()
    if isinstance(saved, Tensor):
        return saved
    if saved.__class__ is SavedWrapper:
        return saved.value(_value)
    if saved.__class__ is SavedWhole:
        return saved.value()
    if saved.__class__ is ReceivedHandle:
        return _received(saved)
    handle: Handle = saved
    run, trace = handle.run, handle.run.trace
    with run.lock:
        slot = trace.moved.get(handle.slot, handle.slot)
        storage = trace.tail.partial.get(slot) or trace.held.storages.get(slot)
        if storage is None:
            assert run.sweep is not None
            with trace.streams.at_home():
                run.sweep.fetch(handle)
            storage = trace.held.storages[slot]
        with torch._C._AutoDispatchBelowAutograd():
            return trace.streams.hand_out(tensor_on(storage, handle.geometry))


def _received(handle: ReceivedHandle) -> Tensor:
    with handle.run.lock, torch._C._AutoDispatchBelowAutograd():
        storage = handle.run.trace.held.storages[handle.slot]
        return tensor_on(storage, handle.geometry)

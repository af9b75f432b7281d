"""Peak bytes as PyTorch's CPU allocator counts them."""

import gc
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile


def peak_bytes(job: Callable[[], object]) -> int:
    """The most bytes that PyTorch's CPU allocator held at once, beyond the start."""
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
        job()
    live = peak = 0
    events = [
        (event.start_ns(), event.nbytes())
        for event in trace.profiler.kineto_results.events()
        if event.name() == "[memory]"
    ]
    for _, nbytes in sorted(events, key=lambda event: event[0]):
        live += nbytes
        peak = max(peak, live)
    return peak


def ready_gradients(parameters: list[torch.Tensor]) -> None:
    """Allocate the leaf gradients, which every method needs alike."""
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)

"""Time, and peak bytes as the allocator counts them."""

import gc
import time
import tracemalloc
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

Job = Callable[[], object]


def peak_bytes(job: Job) -> int:
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


def seconds(job: Job, repeats: int = 3) -> float:
    """The least processor time of some runs; other work on the machine is left out."""
    best = float("inf")
    for _ in range(repeats):
        gc.collect()
        begin = time.process_time()
        job()
        best = min(best, time.process_time() - begin)
    return best


def python_bytes(job: Job) -> int:
    """The most bytes that Python objects held at once: what bookkeeping takes."""
    gc.collect()
    tracemalloc.start()
    try:
        job()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def ready_gradients(parameters: list[torch.Tensor]) -> None:
    """Allocate the leaf gradients, which every method needs alike."""
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)

"""Peak bytes as PyTorch's allocators count them: CUDA's where it is, else the CPU's."""

import gc
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

ON_CUDA = torch.cuda.is_available()
DEVICE = "cuda" if ON_CUDA else "cpu"


def peak_bytes(job: Callable[[], object]) -> int:
    """The most bytes that the device's allocator held at once, beyond the start."""
    gc.collect()
    if ON_CUDA:
        return _cuda_peak(job)
    return _profiled(job)[0]


def allocated(job: Callable[[], object]) -> tuple[int, object]:
    """The bytes that the CPU's allocator holds after a job, and what the job gives."""
    return _profiled(job)[1:]


def _profiled(job: Callable[[], object]) -> tuple[int, int, object]:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
        result = job()
    live = peak = 0
    events = [
        (event.start_ns(), event.nbytes())
        for event in trace.profiler.kineto_results.events()
        if event.name() == "[memory]"
    ]
    for _, nbytes in sorted(events, key=lambda event: event[0]):
        live += nbytes
        peak = max(peak, live)
    return peak, live, result


def _cuda_peak(job: Callable[[], object]) -> int:
    """What the caching allocator was asked for: a block may be up to 1 MB larger."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    job()
    torch.cuda.synchronize()
    return torch.cuda.memory_stats()["requested_bytes.all.peak"] - before


def ready_gradients(parameters: list[torch.Tensor]) -> None:
    """Allocate the leaf gradients, which every method needs alike."""
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)

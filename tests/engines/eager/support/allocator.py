"""PyTorch's own account of memory, independent of ours."""

from __future__ import annotations

from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile


def peak_bytes(job: Callable[[], object]) -> int:
    """The most bytes that the CPU's allocator held at once, beyond the start."""
    # Up to 2.12 the profiler warns that a next cycle would clear this one's events.
    with profile(
        activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True
    ) as trace:
        job()
    live = peak = 0
    found = trace.profiler.kineto_results.events()  # type: ignore[union-attr]
    events = [(e.start_ns(), e.nbytes()) for e in found if e.name() == "[memory]"]
    for _, nbytes in sorted(events, key=lambda event: event[0]):
        live += nbytes
        peak = max(peak, live)
    return peak

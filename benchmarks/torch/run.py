"""Memory and time of every way to train a workload, in one process.

    python -m benchmarks.torch.run [--small] [--accelerate] [mlp|gpt|lstm ...]

Times are processor times of one forward and backward on one thread, as ratios to plain
PyTorch in the same run. Peaks are what the CPU allocator counted beyond the start,
leaf gradients allocated before. "All" adds the most bytes of Python objects, which is
where a method that keeps books pays.

The rows "at" a rival are ours (`recompute`, and `checkpoint_sequential(memory=)`) with
the peak that it was measured to have as the budget: at equal memory, who is faster?
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from benchmarks.harness import Table, asked, least, python_bytes
from benchmarks.torch import rivals, workloads
from benchmarks.torch.allocator import DEVICE, ON_CUDA, peak_bytes, ready_gradients
from benchmarks.torch.workloads import Workload
from torch import Tensor

import retape.torch
from retape._errors import BudgetError

SHARES = (0.6, 0.3, 0.15, 0.1)
"""Budgets, as shares of what plain takes."""
Row = tuple[str, Callable[[Workload], Tensor]]


def methods(name: str, work: Workload, plain: int) -> list[Row]:
    """Every way but plain, whose peak is given."""
    count = len(work.blocks)
    root, third = round(count**0.5), round(count ** (1 / 3))
    by_parts = partial(rivals.by_parts, count=root)
    nested = partial(rivals.nested, outer=third, inner=third)
    rows: list[Row] = [
        *([("torch, saved on the CPU", rivals.saved_on_cpu)] if ON_CUDA else []),
        ("torch checkpoint, each block", rivals.per_block),
        (f"torch checkpoint, {root} parts", by_parts),
        (f"torch checkpoint, {third} x {third} nested", nested),
    ]
    if name != "lstm":  # a block of ten tiny operators has no use for a policy
        rows += [
            ("torch checkpoint, selective", rivals.selective),
            ("retape, selective", rivals.our_selective),
        ]
    more: list[tuple[tuple[float, ...], dict[str, str]]] = [(SHARES, {})]
    if ON_CUDA:
        more.append((SHARES[1:3], {"store": "cpu"}))
    if name == "lstm":
        more.append(((0.1,), {"mode": "loop"}))
    for shares, options in more:
        for share in shares:
            way = partial(rivals.ours, memory=int(share * plain), **options)
            rows.append((f"retape, {share} of plain {options or ''}", way))
    return rows


def main() -> None:
    given = asked(
        __doc__, workloads.WORKLOADS, {"names": ["mlp"]}, small=False, accelerate=False
    )
    torch.set_num_threads(1)
    made = workloads.ON_CUDA if ON_CUDA else workloads.WORKLOADS
    made = workloads.SMALL if given.small or given.quick else made
    if given.accelerate:
        retape.torch.accelerate()
    for name in given.names:
        with torch.device(DEVICE):
            work = made[name]()
        ready_gradients(work.parameters)
        table = Table("", "MB", "with Python's", "time", title=work.name)
        base, plain = row(table, "plain", work, rivals.plain, 0.0)
        peaks = {}
        for label, forward in methods(name, work, plain):
            took, peak = attempt(table, label, work, forward, base)
            if label.startswith("torch"):
                peaks[label] = peak
        for label, peak in peaks.items():
            at = label.removeprefix("torch checkpoint, ")
            for kind, way in at_equal_memory(name):
                forward = partial(way, memory=int(peak))
                attempt(table, f"{kind} at '{at}'", work, forward, base)


def at_equal_memory(name: str) -> list[tuple[str, Callable[..., Tensor]]]:
    """Ours, in what a rival takes; `mode="loop"` is for many small operators."""
    ways = [("retape", rivals.ours), ("chain", rivals.chained)]
    return (
        [*ways, ("loop", partial(rivals.ours, mode="loop"))] if name == "lstm" else ways
    )


def attempt(table: Table, label: str, *how: Any) -> tuple[float, int]:
    """A row; one that says why if the budget is too small for the method."""
    try:
        return row(table, label, *how)
    except BudgetError as error:
        table.row(label, f"refused: {error}", None, None)
        return 0.0, 0


def row(
    table: Table,
    label: str,
    work: Workload,
    forward: Callable[[Workload], Tensor],
    base: float,
) -> tuple[float, int]:
    """Measure and print one method; seconds and peak."""
    job = rivals.step(work, forward)
    for _ in range(rivals.RUNS_TO_LEARN):
        job()
    clock = time.perf_counter if ON_CUDA else time.process_time
    took, peak = least(job, clock=clock), peak_bytes(job)
    books = 0 if ON_CUDA else python_bytes(job)  # no part of a device's memory
    table.row(label, peak / 1e6, (peak + books) / 1e6, took / (base or took))
    return took, peak


if __name__ == "__main__":
    main()

"""Memory and time of every way to train a workload, in one process.

    python -m benchmarks.torch.run [--small] [mlp|gpt|lstm|resnet|llama ...]

Times are processor times of one forward and backward on one thread, as ratios to plain
PyTorch in the same run. Peaks are what the CPU allocator counted beyond the start,
leaf gradients allocated before. "All" adds the most bytes of Python objects, which is
where a method that keeps books pays.

The rows "at" a rival are ours (`recompute`, and `checkpoint_sequential(memory=)`) with
the peak that it was measured to have as the budget: at equal memory, who is faster?
"""

import sys
from collections.abc import Callable
from functools import partial

import torch
from benchmarks.harness import Table, python_bytes
from benchmarks.harness import least as seconds
from benchmarks.torch import rivals
from benchmarks.torch.allocator import peak_bytes, ready_gradients
from benchmarks.torch.workloads import SMALL, WORKLOADS, Workload
from torch import Tensor

from retape._errors import BudgetError

BUDGETS = {
    "mlp": (100, 50, 25, 15),
    "gpt": (300, 120, 70, 45),
    "lstm": (60, 10),
    "resnet": (100, 60),
    "llama": (100, 60),
}
Row = tuple[str, Callable[[Workload], Tensor]]


def methods(name: str, work: Workload) -> list[Row]:
    count = len(work.blocks)
    root, third = round(count**0.5), round(count ** (1 / 3))
    ours: list[Row] = [
        (
            f"retape, {budget} MB",
            lambda w, b=budget: rivals.ours(w, memory=b * 10**6),
        )
        for budget in BUDGETS[name]
    ]
    if name == "lstm":
        ours.append(
            (
                "retape, 10 MB, mode='loop'",
                lambda w: rivals.ours(w, memory=10**7, mode="loop"),
            )
        )
    rows: list[Row] = [
        ("plain", rivals.plain),
        ("torch checkpoint, each block", rivals.per_block),
        (f"torch checkpoint, {root} parts", lambda w: rivals.by_parts(w, root)),
        (
            f"torch checkpoint, {third} x {third} nested",
            lambda w: rivals.nested(w, third, third),
        ),
    ]
    if name != "lstm":  # a block of ten tiny operators has no use for a policy
        rows += [
            ("torch checkpoint, selective", rivals.selective),
            ("retape, selective", rivals.our_selective),
        ]
    return [*rows, *ours]


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    made = SMALL if "--small" in names else WORKLOADS
    for name in [each for each in names if each != "--small"] or list(made):
        work = made[name]()
        ready_gradients(work.parameters)
        table = Table("", "MB", "with Python's", "time", title=work.name)
        base, peaks = 0.0, {}
        for label, forward in methods(name, work):
            took, peak = row(table, label, work, forward, base)
            base = base or took
            if label.startswith("torch"):
                peaks[label] = peak
        for label, peak in peaks.items():
            at = label.removeprefix("torch checkpoint, ")
            for kind, way in at_equal_memory(name):
                forward = partial(way, memory=int(peak))
                try:
                    row(table, f"{kind} at '{at}'", work, forward, base)
                except BudgetError as error:
                    table.row(f"{kind} at '{at}'", f"refused: {error}", None, None)


def at_equal_memory(name: str) -> list[tuple[str, Callable[..., Tensor]]]:
    """Ours, in what a rival takes; `mode="loop"` is for many small operators."""
    ways = [("retape", rivals.ours), ("chain", rivals.chained)]
    return (
        [*ways, ("loop", partial(rivals.ours, mode="loop"))] if name == "lstm" else ways
    )


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
    took, peak, books = seconds(job), peak_bytes(job), python_bytes(job)
    table.row(label, peak / 1e6, (peak + books) / 1e6, took / (base or took))
    return took, peak


if __name__ == "__main__":
    main(sys.argv[1:])

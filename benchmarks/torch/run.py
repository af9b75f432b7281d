"""Memory and time of every way to train a workload, in one process.

    python benchmarks/torch/run.py [mlp|gpt|lstm ...]

Times are processor times of one forward and backward on one thread, as ratios to plain
PyTorch in the same run. Peaks are what the CPU allocator counted beyond the start,
leaf gradients allocated before.
"""

import sys
from collections.abc import Callable

import rivals
import torch
from measure import peak_bytes, ready_gradients, seconds
from torch import Tensor
from workloads import WORKLOADS, Workload

BUDGETS = {
    "mlp": (100, 50, 36, 25, 15),
    "gpt": (300, 180, 120, 70, 55),
    "lstm": (60, 10),
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
    return [
        ("plain", rivals.plain),
        ("torch checkpoint, each block", rivals.per_block),
        (f"torch checkpoint, {root} parts", lambda w: rivals.by_parts(w, root)),
        (
            f"torch checkpoint, {third} x {third} nested",
            lambda w: rivals.nested(w, third, third),
        ),
        *ours,
    ]


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    for name in names or list(WORKLOADS):
        work = WORKLOADS[name]()
        ready_gradients(work.parameters)
        print(f"\n{work.name:34s} {'MB':>8s} {'time':>6s}")
        base = 0.0
        for label, forward in methods(name, work):
            job = rivals.step(work, forward)
            job()
            took, peak = seconds(job), peak_bytes(job)
            base = base or took
            print(f"{label:34s} {peak / 1e6:8.1f} {took / base:6.2f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

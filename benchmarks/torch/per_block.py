"""At the memory of `torch.utils.checkpoint` around each block, who is faster?

    python benchmarks/torch/per_block.py [mlp|gpt|resnet|llama] [turns]

The two take turns in one process; the median of processor times, and of the ratios.
"""

import sys
from statistics import median

import rivals
import torch
from measure import peak_bytes, ready_gradients, seconds
from workloads import WORKLOADS

import retape.torch


def main(name: str = "mlp", turns: str = "5") -> None:
    torch.set_num_threads(1)
    retape.torch.accelerate()
    work = WORKLOADS[name]()
    ready_gradients(work.parameters)
    theirs = rivals.step(work, rivals.per_block)
    theirs()
    room = peak_bytes(theirs)
    ways = {
        "plain": rivals.plain,
        "chain": lambda w: rivals.chained(w, room),
        "recompute": lambda w: rivals.ours(w, memory=room),
    }
    print(f"{work.name}, each block checkpointed: {room / 1e6:.1f} MB")
    for label, forward in ways.items():
        ours = rivals.step(work, forward)
        for _ in range(rivals.RUNS_TO_LEARN):
            ours()
        pairs = [(seconds(ours, 1), seconds(theirs, 1)) for _ in range(int(turns))]
        ratio = median(a / b for a, b in pairs)
        print(f"{label:10s} {peak_bytes(ours) / 1e6:7.1f} MB {ratio:6.3f}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""What recording and replaying cost, on operators of sixteen numbers.

python benchmarks/torch/per_operator.py
"""

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

import retape.torch

OPERATORS = 4000


def forward(w: torch.Tensor) -> torch.Tensor:
    h = torch.ones(4, 4)
    for _ in range(OPERATORS // 2):
        h = torch.tanh(h * w)
    return h.sum()


def once(under: AbstractContextManager[Any]) -> tuple[float, float]:
    w = torch.full((4, 4), 0.9, requires_grad=True)
    begin = time.process_time()
    with under:
        loss = forward(w)
    middle = time.process_time()
    loss.backward()
    return middle - begin, time.process_time() - middle


def best(under: AbstractContextManager[Any]) -> tuple[float, float]:
    runs = [once(under) for _ in range(7)]
    return min(run[0] for run in runs) * 1e6, min(run[1] for run in runs) * 1e6


def report() -> None:
    plain = best(nullcontext())
    kept = best(retape.torch.recompute(memory="1GB"))
    tight = retape.torch.recompute(memory=60_000)
    evicted = best(tight)
    replayed = tight.report.recomputed
    print(f"plain forward     {plain[0] / OPERATORS:6.2f} us an operator")
    print(f"recording         {(kept[0] - plain[0]) / OPERATORS:6.2f} us more")
    print(
        f"unpacking         {(kept[1] - plain[1]) / OPERATORS:6.2f} us more, backward"
    )
    print(
        f"replaying         {(evicted[1] - kept[1]) / replayed:6.2f} us a replayed one"
    )


def main() -> None:
    torch.set_num_threads(1)
    print("in Python")
    report()
    retape.torch.accelerate()
    print("compiled")
    report()


if __name__ == "__main__":
    main()

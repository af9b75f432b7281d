"""What watching a gradient's health costs in PyTorch, in turn.

    python benchmarks/torch/health.py [ROUNDS]

`retape.torch.diagnose` of a sound program, against the same forward and backward
without it: plain, and within a budget. The median of the ratios within a round, and the
ratio of the least times, since neighbours on the machine slow both.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

import retape.torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.with_and_without import with_and_without  # noqa: E402

Program = Callable[[], torch.Tensor]


def layers(width: int, depth: int, rows: int) -> tuple[Any, Program]:
    """Linear layers with tanh between them."""
    parts = [(torch.nn.Linear(width, width), torch.nn.Tanh()) for _ in range(depth)]
    model = torch.nn.Sequential(*[part for pair in parts for part in pair])
    given = torch.ones(rows, width)
    return model, lambda: model(given).square().mean()


def transformer() -> tuple[Any, Program]:
    """Three layers of attention, sixteen texts of 128 tokens."""
    layer = torch.nn.TransformerEncoderLayer(128, 4, 512, 0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    given = torch.randn(16, 128, 128)
    return model, lambda: model(given).square().mean()


def advected(size: int, steps: int) -> tuple[Any, Program]:
    """A few operators on each number of a field, in a loop."""
    x = torch.linspace(0.0, 1.0, size, requires_grad=True)

    def run() -> torch.Tensor:
        y = x
        for _ in range(steps):
            y = y + 0.1 * (torch.roll(y, 1) - y) - 1e-3 * torch.sin(y)
        return y.square().mean()

    return [x], run


PROGRAMS = {
    "20 layers of 256, 256 rows": (layers(256, 20, 256), "4MB"),
    "transformer of 3 layers": (transformer(), "20MB"),
    "1,000 numbers, 200 steps": (advected(1000, 200), "300kB"),
    "300,000 numbers, 20 steps": (advected(300_000, 20), "20MB"),
}


def seconds(leaves: Any, run: Program, watch: bool) -> float:
    """One forward and backward."""
    given = list(leaves.parameters()) if hasattr(leaves, "parameters") else leaves
    began = time.process_time()
    if watch:
        assert retape.torch.diagnose(run).fault is None
    else:
        torch.autograd.grad(run(), given)
    return time.process_time() - began


def main(rounds: int) -> None:
    """Print two lines for each program."""
    for name, ((leaves, plain), memory) in PROGRAMS.items():
        budget = retape.torch.recompute(memory=memory)
        for said, run in (("plain", plain), (memory, budget(plain))):
            for _ in range(3):
                seconds(leaves, run, True), seconds(leaves, run, False)
            found = with_and_without(partial(seconds, leaves, run), rounds)
            print(f"{name:28} {said:6} {found}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)

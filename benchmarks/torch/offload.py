"""What snapshots outside of memory cost a PyTorch program, with and without waiting.

The same network three times in turn: plain, with its snapshots in files, and with files
that are written and read in the background. Gradients are compared to the bit.
Run: `python -m benchmarks.torch.offload [--layers N] [--rounds N]`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from benchmarks.harness import Table, in_turn

import retape.torch
from retape import DiskStore
from retape.storage import AsyncStore

WIDTH, BATCH = 512, 2048


def network(layers: int) -> torch.nn.Sequential:
    """Linear layers and activations; a state of 4 MB after each."""
    torch.manual_seed(0)
    parts: list[torch.nn.Module] = []
    for _ in range(layers):
        parts += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()]
    return torch.nn.Sequential(*parts)


def step(model: torch.nn.Sequential, x: torch.Tensor, under: Any) -> list[Any]:
    """Forward and backward; the gradients."""
    model.zero_grad(set_to_none=True)
    with under:
        loss = model(x).square().mean()
    loss.backward()
    return [p.grad for p in model.parameters()]


def main() -> None:
    """Print each form's time beside that of snapshots in memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    model, x = network(given.layers), torch.randn(BATCH, WIDTH)
    state = BATCH * WIDTH * 4
    with tempfile.TemporaryDirectory() as path:
        where: dict[str, Callable[[], Any]] = {
            "in memory": lambda: None,
            "files": lambda: DiskStore(f"{path}/files"),
            "files, background": lambda: AsyncStore(DiskStore(f"{path}/background")),
        }
        forms = {
            name: retape.torch.recompute(snapshots=12, stage=10, store=make())
            for name, make in where.items()
        }
        expected = step(model, x, torch.enable_grad())

        def run(under: Any) -> None:
            assert all(map(torch.equal, expected, step(model, x, under)))

        calls = {name: partial(run, under) for name, under in forms.items()}
        times = in_turn(calls, given.rounds, time.perf_counter, warm=False)
    title = f"{given.layers} layers, states of {state / 1e6:.1f} MB"
    table = Table("", "s", "over memory", "snapshots", "steps again", title=title)
    for name, took in times.items():
        ratio, report = took.over(times["in memory"]), forms[name].report
        table.row(name, took.median, ratio, report.snapshots, report.recomputed)


if __name__ == "__main__":
    main()

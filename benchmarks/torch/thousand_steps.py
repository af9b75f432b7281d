"""A training of 1,000 steps that changes as it goes, compared to the bit.

    python benchmarks/torch/thousand_steps.py [--accelerate] [--steps 1000]

A small GPT with dropout, under AdamW and clipped gradients: five lengths of text take
turns, each step accumulates two batches, every 50 steps there is a validation (without
gradient, in turn inside of the block and outside), and half way half of the parameters
are frozen. The plain model and the one under `recompute` take turns, each with its own
optimiser and random state; every loss, norm, validation and in the end all parameters
and states are compared to the bit. Every 100 steps it prints the heap, as the counter
of `heap.py` has it, and the most that a batch took of the budget.
"""

import argparse
import gc
import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from heap import _MARK, Heap, count_heap, own_graph
from long_training import BATCH, TEXT, SmallGPT
from torch import Tensor, nn

import retape.torch

_TEXT = torch.tensor([ord(c) for c in TEXT[:20_000]])
LENGTHS = (16, 64, 32, 48, 24)
LAYERS, WIDTH, BATCHES, VALIDATE, REPORT = 3, 32, 2, 50, 100


class Side:
    """One of the two trainings."""

    def __init__(self, memory: int | None) -> None:
        torch.manual_seed(0)
        self.memory = memory
        self.model: nn.Module = SmallGPT(LAYERS, WIDTH)
        self.optimiser = torch.optim.AdamW(self.model.parameters(), 3e-4)
        self.random = torch.get_rng_state()
        self.again = 0

    def under(self) -> AbstractContextManager[Any]:
        if self.memory is None:
            return nullcontext()
        return retape.torch.recompute(memory=self.memory)

    def step(self, step: int, heap: Heap, graph: dict[int, int]) -> tuple[Tensor, int]:
        """Two batches and an update; its numbers, and the most heap of a batch."""
        torch.set_rng_state(self.random)
        self.optimiser.zero_grad(set_to_none=False)
        numbers: list[Tensor] = []
        most = 0
        for part in range(BATCHES):
            text, target = batch_of(BATCHES * step + part, LENGTHS[step % len(LENGTHS)])
            before = heap.begin()
            with self.under() as run:
                loss = self.model(text, target) / BATCHES
            loss.backward()
            most = max(most, heap.most() - before - graph[text.shape[1]])
            if run is not None:
                self.again += run.report.recomputed > 0
            numbers.append(loss.detach())
            del loss, run
        params = [p for p in self.model.parameters() if p.requires_grad]
        numbers.append(nn.utils.clip_grad_norm_(params, 0.5))
        self.optimiser.step()
        if (step + 1) % VALIDATE == 0:
            numbers.append(self.validate(step, inside=(step // VALIDATE) % 2 == 0))
        self.random = torch.get_rng_state()
        return torch.stack([each.detach() for each in numbers]), most

    def validate(self, step: int, inside: bool) -> Tensor:
        self.model.eval()
        batch = batch_of(-1 - step, LENGTHS[step // VALIDATE % len(LENGTHS)])
        with self.under() if inside else nullcontext(), torch.no_grad():
            loss = self.model(*batch)
        self.model.train()
        return loss

    def freeze(self) -> None:
        """From now on every second parameter stays as it is."""
        for parameter in [*self.model.parameters()][::2]:
            parameter.requires_grad_(False)
            parameter.grad = None

    def state(self) -> list[Tensor]:
        states = self.optimiser.state.values()
        return [
            *self.model.state_dict().values(),
            *(value for each in states for value in each.values()),
            self.random,
        ]


def batch_of(number: int, length: int) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(number % 2**31)
    begins = torch.randint(0, len(_TEXT) - length - 1, (BATCH,), generator=source)
    rows = torch.stack([_TEXT[b : b + length + 1] for b in begins])
    return rows[:, :-1], rows[:, 1:]


def main() -> None:
    parser = argparse.ArgumentParser(description="A training of 1,000 steps.")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--accelerate", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.accelerate:
        retape.torch.accelerate()
    heap, probe = Heap(), SmallGPT(LAYERS, WIDTH)
    for parameter in probe.parameters():
        parameter.grad = torch.zeros_like(parameter)
    batches = {length: batch_of(0, length) for length in LENGTHS}
    found = retape.torch.estimate(probe, *batches[max(LENGTHS)])
    memory = (4 * found.least + found.enough) // 5
    graph = {n: own_graph(heap, lambda b=b: probe(*b)) for n, b in batches.items()}
    print(f"budget {memory / 1e6:.2f} MB, of {found.enough / 1e6:.2f} at most")
    sides, same, most = (Side(None), Side(memory)), True, [0, 0]
    for step in range(options.steps):
        if step == options.steps // 2:
            for side in sides:
                side.freeze()
        (plain, taken), (ours, taken_too) = (s.step(step, heap, graph) for s in sides)
        same = same and torch.equal(plain, ours)
        most = [max(most[0], taken), max(most[1], taken_too)]
        if (step + 1) % REPORT == 0:
            gc.collect()
            print(
                f"{step + 1:5d} steps: heap {heap.live() / 1e6:8.3f} MB; a batch took "
                f"{most[0] / 1e6:.2f} plainly, {most[1] / 1e6:.2f} in the budget; "
                f"{'same bits' if same else 'NOT THE SAME'}",
                flush=True,
            )
            most = [0, 0]
    same = same and all(map(torch.equal, sides[0].state(), sides[1].state()))
    again = sides[1].again / BATCHES / options.steps
    print(f"every number and all states the same: {same}; {again:.0%} ran again")


if __name__ == "__main__":
    if _MARK not in os.environ:
        count_heap()
    main()

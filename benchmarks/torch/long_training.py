"""A long training run of the small GPT, plainly and in a byte budget, bit for bit.

    python benchmarks/torch/long_training.py --minutes 30 --out out/training

Two processes' worth of work in one: the plain model and the model under `recompute`
take turns, batch by batch, each with its own optimiser and random states, for so many
minutes altogether. Each step's two losses are written to `losses.csv`; every `--save`
steps both models, optimisers and random states go to `state.pt`, and a run that was
killed goes on from there. At the end both models are compared bit by bit.
"""

import argparse
import csv
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from workloads import GPTBlock

import retape.torch

TEXT = "".join(
    chr(c) for path in sorted(Path(__file__).parent.glob("*.py"))
    for c in path.read_bytes() if c < 128
)  # fmt: skip
VOCABULARY, LENGTH, BATCH = 128, 128, 8


class SmallGPT(nn.Module):
    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.places = nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(GPTBlock(width, 4) for _ in range(layers))
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, text: Tensor, target: Tensor) -> Tensor:
        x = self.tokens(text) + self.places(torch.arange(text.shape[1]))
        for block in self.blocks:
            (x,) = block(x)
        return F.cross_entropy(self.head(x).flatten(0, 1), target.flatten())


@dataclass
class Side:
    """One of the two trainings: what it has learnt, and its random state."""

    model: nn.Module
    optimiser: torch.optim.Optimizer
    random: Tensor

    @classmethod
    def new(cls, layers: int, width: int) -> "Side":
        torch.manual_seed(0)
        model = SmallGPT(layers, width)
        return cls(
            model, torch.optim.AdamW(model.parameters(), 3e-4), torch.get_rng_state()
        )

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "random": self.random,
        }

    def load(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.random = state["random"]

    def train(
        self,
        batch: tuple[Tensor, Tensor],
        under: Callable[[], AbstractContextManager[Any]],
    ) -> float:
        """One step; dropout draws from the side's own random state."""
        torch.set_rng_state(self.random)
        self.optimiser.zero_grad()
        with under():
            loss = self.model(*batch)
        loss.backward()
        self.optimiser.step()
        self.random = torch.get_rng_state()
        return loss.item()


def batch_of(step: int) -> tuple[Tensor, Tensor]:
    """The batch of a step, the same however often the run was taken up again."""
    source = torch.Generator().manual_seed(step)
    text = torch.tensor([ord(c) for c in TEXT])
    begins = torch.randint(0, len(text) - LENGTH - 1, (BATCH,), generator=source)
    rows = torch.stack([text[b : b + LENGTH + 1] for b in begins])
    return rows[:, :-1], rows[:, 1:]


def train(options: argparse.Namespace) -> tuple[int, float, bool]:
    """Train until the time is over; the steps, the seconds, and whether all agree."""
    options.out.mkdir(parents=True, exist_ok=True)
    saved, table = options.out / "state.pt", options.out / "losses.csv"
    sides = [Side.new(options.layers, options.width) for _ in range(2)]
    step, spent = 0, 0.0
    if saved.exists():
        state = torch.load(saved)
        step, spent = state["step"], state["spent"]
        for side, each in zip(sides, state["sides"], strict=True):
            side.load(each)
    rows = list(csv.reader(table.open()))[: step + 1] if table.exists() else []
    same = all(row[1] == row[2] for row in rows[1:])
    ways = [nullcontext, lambda: retape.torch.recompute(memory=options.memory)]
    begin = time.monotonic() - spent
    with table.open("w") as out:
        writer = csv.writer(out)
        writer.writerows(rows or [("step", "plain", "recomputed")])
        while time.monotonic() - begin < 60 * options.minutes:
            losses = [
                side.train(batch_of(step), under)
                for side, under in zip(sides, ways, strict=True)
            ]
            same &= losses[0] == losses[1]
            writer.writerow((step, *(loss.hex() for loss in losses)))
            step += 1
            if step % options.save == 0:
                out.flush()
                spent = time.monotonic() - begin
                state = {"step": step, "spent": spent}
                torch.save({**state, "sides": [s.state() for s in sides]}, saved)
    models = [side.model.state_dict().values() for side in sides]
    same &= all(torch.equal(a, b) for a, b in zip(*models, strict=True))
    return step, time.monotonic() - begin, same


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=0.1)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--memory", default="20MB")
    parser.add_argument("--save", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("out/training"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    step, seconds, same = train(options)
    print(f"{step} steps of each in {seconds / 60:.1f} minutes")
    print("losses and parameters equal to the last bit:", same)


if __name__ == "__main__":
    main()

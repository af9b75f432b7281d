"""Train a small transformer in a byte budget; the losses are the same to the bit.

python examples/torch/budget.py
"""

import torch
import torch.nn.functional as F
from torch import nn

import retape.torch


def model() -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
    return nn.Sequential(
        nn.Embedding(50, 32), nn.TransformerEncoder(layer, 6), nn.Linear(32, 50)
    )


def train(memory: str | None, steps: int = 5) -> list[float]:
    net = model()
    optimiser = torch.optim.AdamW(net.parameters(), 1e-3)
    run = retape.torch.recompute(memory=memory or "1TB")
    losses: list[float] = []
    for _ in range(steps):
        tokens = torch.randint(0, 50, (8, 25))
        if memory is None:
            loss = F.cross_entropy(net(tokens[:, :-1]).mT, tokens[:, 1:])
        else:
            with run:
                loss = F.cross_entropy(net(tokens[:, :-1]).mT, tokens[:, 1:])
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        losses.append(loss.item())
    if memory is not None:
        report = run.report
        print(f"{memory}: {report.recomputed} of {report.steps} operators run again")
    return losses


def main() -> None:
    plain = train(None)
    for memory in ("4MB", "2MB", "1.5MB"):
        same = train(memory) == plain
        print(same)
        assert same, "the losses differ"


if __name__ == "__main__":
    main()

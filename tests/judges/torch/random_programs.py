"""Random programs: shared values, views, writes in place, frozen parameters."""

import random

import torch
import torch.nn.functional as F
from torch import Tensor, nn

KINDS = 24


class RandomProgram:
    """A program that is the same whenever it is called.

    Args:
        seed: Says all of it: sizes, operators, what is frozen, how many results it has.
    """

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        torch.manual_seed(seed)
        self.width, self.batch = rng.choice([16, 32, 48]), rng.choice([32, 64, 128])
        size = (self.width, self.width)
        count = rng.randint(1, 5)
        self.weights = [nn.Parameter(torch.randn(size) / 5) for _ in range(count)]
        self.vectors = [nn.Parameter(torch.randn(self.width) / 9) for _ in range(2)]
        self.table = nn.Parameter(torch.randn(20, self.width))
        self.norm = nn.BatchNorm1d(self.width)
        self.input = torch.randn(self.batch, self.width)
        for parameter in (*self.weights[1:], self.vectors[1]):
            parameter.requires_grad_(rng.random() > 0.2)
        self.outputs = rng.randint(1, 3)
        self.steps = [
            (rng.randrange(KINDS), *(rng.random() for _ in range(3)))
            for _ in range(rng.randint(10, 70))
        ]

    def parameters(self) -> list[nn.Parameter]:
        normed = self.norm.parameters()
        return [*self.weights, *self.vectors, self.table, *normed]

    def reset(self) -> None:
        """As before the first step, with room for the gradients."""
        torch.manual_seed(1)
        self.norm.reset_running_stats()
        for parameter in self.parameters():
            if parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter)

    def __call__(self) -> list[Tensor]:
        pool = [self.input @ self.weights[0]]
        for kind, a, b, c in self.steps:
            old = pool[int(a * len(pool))]
            pool.append(self.step(kind, pool[-1], old, b, c))
            if len(pool) > 4:
                pool.pop(int(b * (len(pool) - 1)))
            del old
        return [(t * t).mean() if k else t.square().mean()
                for k, t in enumerate(pool[-self.outputs :])]  # fmt: skip

    def step(self, kind: int, x: Tensor, old: Tensor, b: float, c: float) -> Tensor:
        """The value that follows `x`."""
        weight = self.weights[int(b * len(self.weights))]
        vector = self.vectors[int(c * 2)]
        half, rows = self.batch // 2, torch.arange(self.batch)
        match kind:
            case 0:
                return x @ weight
            case 1:
                return F.linear(x, weight, vector)
            case 2:
                return x.tanh()
            case 3:
                return F.gelu(x)
            case 4:
                return F.dropout(x, 0.2)
            case 5:
                return x + old
            case 6:
                return x * old.sigmoid()
            case 7:
                return self.norm(x)
            case 8:
                return F.layer_norm(x, (self.width,), vector)
            case 9:
                return (x * 1.5).relu_()
            case 10:
                y = x.clone()
                y[:half] = old[half:] * 0.5
                return y
            case 11:
                left, right = x.chunk(2, 1)
                return torch.cat([right.sin(), left], 1)
            case 12:
                return x.softmax(1) * self.width
            case 13:
                return x / (old.square().mean(1, keepdim=True) + 1).sqrt()
            case 14:
                return torch.where(old > 0, x, old)
            case 15:
                return x + self.table[rows % 20]
            case 16:
                y = x.view(self.batch, 4, -1).transpose(1, 2).softmax(-1)
                return y.transpose(1, 2).reshape(x.shape)
            case 17:
                return (x.t() @ old / self.batch)[rows % self.width]
            case 18:
                return x.sub(x.mean(0)).div(x.std(0) + 0.1)
            case 19:
                return (x + 1).mul_(vector)
            case 20:
                return x * vector + vector
            case 21:
                return x.cumsum(1) / self.width
            case 22:
                parts = [
                    part.exp() for part in x.clamp(max=1).split(x.shape[1] // 4, 1)
                ]
                return torch.cat([parts[0] * parts[1], *parts[1:]], 1)
            case _:
                return x[:, 1:].mul(x[:, :-1]).sum(1, keepdim=True).tanh() + x

"""Random programs: shared values, views, writes in place, frozen parameters."""

import random
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.judges.torch.models import MODELS, Task


class RandomProgram(nn.Module):
    """A program that is the same whenever it is called.

    Args:
        seed: Says all of it: sizes, operators, what is frozen, how many results it has.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        rng = random.Random(seed)
        torch.manual_seed(seed)
        self.width, self.batch = rng.choice([16, 32, 48]), rng.choice([32, 64, 128])
        size = (self.width, self.width)
        count = rng.randint(1, 5)
        self.weights = nn.ParameterList(torch.randn(size) / 5 for _ in range(count))
        self.vectors = nn.ParameterList(torch.randn(self.width) / 9 for _ in range(2))
        self.table = nn.Parameter(torch.randn(20, self.width))
        self.norm = nn.BatchNorm1d(self.width)
        self.rows = torch.arange(self.batch)
        self.input = torch.randn(self.batch, self.width)
        for parameter in (*self.weights[1:], self.vectors[1]):
            parameter.requires_grad_(rng.random() > 0.2)
        self.outputs = rng.randint(1, 3)
        self.steps = [
            (rng.randrange(len(KINDS)), *(rng.random() for _ in range(3)))
            for _ in range(rng.randint(10, 70))
        ]

    def forward(self) -> Tensor:
        pool = [self.input @ self.weights[0]]
        for kind, a, b, c in self.steps:
            old = pool[int(a * len(pool))]
            pool.append(self.step(kind, pool[-1], old, b, c))
            if len(pool) > 4:
                pool.pop(int(b * (len(pool) - 1)))
            del old
        ends = pool[-self.outputs :]
        return sum(
            (t * t).mean() if k else t.square().mean() for k, t in enumerate(ends)
        )

    def step(self, kind: int, x: Tensor, old: Tensor, b: float, c: float) -> Tensor:
        """The value that follows `x`."""
        weight = self.weights[int(b * len(self.weights))]
        return KINDS[kind](self, x, old, weight, self.vectors[int(c * 2)])


def half_replaced(program: RandomProgram, x: Tensor, old: Tensor, *_: Tensor) -> Tensor:
    y, half = x.clone(), program.batch // 2
    y[:half] = old[half:] * 0.5
    return y


def softmax_of_parts(program: RandomProgram, x: Tensor, *_: Tensor) -> Tensor:
    y = x.view(program.batch, 4, -1).transpose(1, 2).softmax(-1)
    return y.transpose(1, 2).reshape(x.shape)


def exponents_of_parts(program: RandomProgram, x: Tensor, *_: Tensor) -> Tensor:
    parts = [part.exp() for part in x.clamp(max=1).split(x.shape[1] // 4, 1)]
    return torch.cat([parts[0] * parts[1], *parts[1:]], 1)


# Of the program, the latest value, an older one, a matrix and a vector.
KINDS: list[Callable[..., Tensor]] = [
    lambda p, x, old, w, v: x @ w,
    lambda p, x, old, w, v: F.linear(x, w, v),
    lambda p, x, old, w, v: x.tanh(),
    lambda p, x, old, w, v: F.gelu(x),
    lambda p, x, old, w, v: F.dropout(x, 0.2),
    lambda p, x, old, w, v: x + old,
    lambda p, x, old, w, v: x * old.sigmoid(),
    lambda p, x, old, w, v: p.norm(x),
    lambda p, x, old, w, v: F.layer_norm(x, (p.width,), v),
    lambda p, x, old, w, v: (x * 1.5).relu_(),
    half_replaced,
    lambda p, x, old, w, v: torch.cat([x.chunk(2, 1)[1].sin(), x.chunk(2, 1)[0]], 1),
    lambda p, x, old, w, v: x.softmax(1) * p.width,
    lambda p, x, old, w, v: x / (old.square().mean(1, keepdim=True) + 1).sqrt(),
    lambda p, x, old, w, v: torch.where(old > 0, x, old),
    lambda p, x, old, w, v: x + p.table[p.rows % 20],
    softmax_of_parts,
    lambda p, x, old, w, v: (x.t() @ old / p.batch)[p.rows % p.width],
    lambda p, x, old, w, v: x.sub(x.mean(0)).div(x.std(0) + 0.1),
    lambda p, x, old, w, v: (x + 1).mul_(v),
    lambda p, x, old, w, v: x * v + v,
    lambda p, x, old, w, v: x.cumsum(1) / p.width,
    exponents_of_parts,
    lambda p, x, old, w, v: x[:, 1:].mul(x[:, :-1]).sum(1, keepdim=True).tanh() + x,
]


def random_program(seed: int) -> Task:
    program = RandomProgram(seed)
    return program, program


for seed in range(4):
    MODELS[f"random_{seed}"] = partial(random_program, seed)

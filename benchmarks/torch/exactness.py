"""Programs on which `torch.utils.checkpoint` is silently wrong or fails.

    python -m benchmarks.torch.exactness

Each is run plainly, under `torch.utils.checkpoint` (not reentrant) and under
`retape.torch.checkpoint`; what is compared are gradients, buffers and counters.
"""

import random
from collections.abc import Callable
from typing import Any

import torch
from benchmarks.harness import Table
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import retape.torch

Region = Callable[..., Any]
Case = Callable[[Region], list[Any]]


def weight() -> Tensor:
    torch.manual_seed(0)
    random.seed(0)
    return torch.randn(8, 8, requires_grad=True)


def statistics(region: Region) -> list[Any]:
    weight()
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU())
    region(model, torch.randn(5, 8)).sum().backward()
    return [*model.buffers()]


def generator(region: Region) -> list[Any]:
    w, source = weight(), torch.Generator().manual_seed(1)
    region(
        lambda x: torch.sin(x * torch.rand(8, 8, generator=source)), w
    ).sum().backward()
    return [w.grad]


def buffer_then_used(region: Region) -> list[Any]:
    w, count = weight(), torch.zeros(())

    def body(x: Tensor) -> Tensor:
        count.add_(1)
        return torch.sin(x * count.clone())

    region(body, w).sum().backward()
    return [w.grad, count]


def python_random(region: Region) -> list[Any]:
    w = weight()

    def body(x: Tensor) -> Tensor:
        for _ in range(6):
            x = torch.sin(x) * 2 if random.random() < 0.5 else torch.cos(x) * 3
        return x

    region(body, w).sum().backward()
    return [w.grad]


def counter(region: Region) -> list[Any]:
    w, calls = weight(), []

    def body(x: Tensor) -> Tensor:
        calls.append(1)
        return torch.sin(x * len(calls))

    region(body, w).sum().backward()
    return [w.grad, len(calls)]


def in_place_on_an_input(region: Region) -> list[Any]:
    w = weight()
    x = torch.ones(8, 8)

    def body(x: Tensor, w: Tensor) -> Tensor:
        x.add_(1)
        return torch.sin(x.clone() * w)

    region(body, x, w).sum().backward()
    return [w.grad, x]


CASES: dict[str, Case] = {
    "batch norm's running statistics": statistics,
    "an explicit generator": generator,
    "a buffer changed, then used": buffer_then_used,
    "branches on Python's random": python_random,
    "a Python counter": counter,
    "in-place on the region's input": in_place_on_an_input,
}


def same(a: Any, b: Any) -> bool:
    return torch.equal(a, b) if isinstance(a, Tensor) else a == b


def verdict(case: Case, region: Region) -> str:
    plain = case(lambda function, *args: function(*args))
    try:
        found = case(region)
    except Exception as error:  # whatever the rival raises is its result
        return f"fails: {type(error).__name__}"
    exact = all(same(a, b) for a, b in zip(plain, found, strict=True))
    return "exact" if exact else "WRONG, silently"


def main() -> None:
    torch.set_num_threads(1)
    table = Table("", "torch.utils.checkpoint", "retape.torch.checkpoint")
    for name, case in CASES.items():
        rival = verdict(case, lambda f, *a: checkpoint(f, *a, use_reentrant=False))
        table.row(name, rival, verdict(case, retape.torch.checkpoint))


if __name__ == "__main__":
    main()

"""The rival of PyTorch: `torch.utils.checkpoint` of each block."""

from __future__ import annotations

import time
from typing import Any

import torch
from benchmarks.harness import in_turn
from torch.utils.checkpoint import checkpoint


def measured_torch(name: str, *, small: bool, rounds: int) -> dict[str, Any]:
    """Time and peak of a workload, if it has a form in PyTorch here."""
    if name not in ("bptt", "transformer"):
        return {"why_not": "has no form in PyTorch here"}
    where = "cuda" if torch.cuda.is_available() else "cpu"
    block, point, count = (_bptt if name == "bptt" else _transformer)(small, where)
    per_block = 1 if name == "transformer" else max(1, round(count**0.5))

    def segment(x: torch.Tensor, first: int) -> torch.Tensor:
        for i in range(first, min(count, first + per_block)):
            x = block(x, i)
        return x

    def once() -> None:
        x = point.clone().requires_grad_()
        y = x
        for first in range(0, count, per_block):
            y = checkpoint(segment, y, first, use_reentrant=False)
        (y * y).sum().backward()
        if where == "cuda":
            torch.cuda.synchronize()

    times = in_turn({"": once}, rounds, time.perf_counter)[""]
    peak = torch.cuda.max_memory_allocated() if where == "cuda" else None
    counted = "device" if where == "cuda" else "nobody"
    return {"seconds": times.median, "peak": peak, "peak_by": counted, "waits": None}


def _bptt(small: bool, where: str) -> Any:
    count, size = (200, 100) if small else (10_000, 1_000)

    def block(x: torch.Tensor, _: int) -> torch.Tensor:
        angle = 0.01 * torch.sqrt(torch.sum(x * x))
        c, s = torch.cos(angle), torch.sin(angle)
        a, b = x[0::2], x[1::2]
        return torch.stack([c * a - s * b, s * a + c * b], 1).reshape(-1).roll(1)

    return block, torch.linspace(0.1, 1, size, device=where), count


def _transformer(small: bool, where: str) -> Any:
    layers, tokens, width = (4, 8, 16) if small else (48, 512, 512)
    generator = torch.Generator().manual_seed(0)

    def made(*shape: int) -> torch.Tensor:
        drawn = torch.randn(layers, *shape, generator=generator)
        return (drawn / shape[-2] ** 0.5).to(where)

    qkv, up, down = (
        made(width, 3 * width),
        made(width, 4 * width),
        made(4 * width, width),
    )
    norm = torch.nn.functional.layer_norm

    def block(x: torch.Tensor, i: int) -> torch.Tensor:
        q, k, v = (norm(x, (width,)) @ qkv[i]).chunk(3, -1)
        x = x + torch.nn.functional.scaled_dot_product_attention(
            q[None], k[None], v[None], is_causal=True
        ).squeeze(0)
        return x + torch.nn.functional.gelu(norm(x, (width,)) @ up[i]) @ down[i]

    point = torch.randn(tokens, width, generator=generator).to(where)
    return block, point, layers

"""Small models and what is asked of them: a loss, its leaves, and the module."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from benchmarks.torch.workloads import GPTBlock
from torch import Tensor, nn


class Program(NamedTuple):
    """A loss to differentiate, and what gets gradients.

    Attributes:
        loss: Computes it.
        parameters: The leaves.
        model: The module whose buffers are set back before each run, if there is one.
    """

    loss: Callable[[], Tensor]
    parameters: list[Tensor]
    model: nn.Module | None = None


def of(net: nn.Module, x: Tensor, under: Any = None) -> Program:
    """The mean of the squares of what a module makes of `x`."""

    def loss() -> Tensor:
        if under is not None:
            with under():
                y = net(x)
        else:
            y = net(x)
        return (y[0] if isinstance(y, tuple) else y).float().square().mean()

    return Program(loss, list(net.parameters()), net)


class First(nn.Module):
    """The first of a block's results."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Tensor) -> Tensor:
        return self.block(x)[0]


class WithLoss(nn.Module):
    """A module and its loss, which may read the input."""

    def __init__(
        self, net: nn.Module, loss: Callable[[Tensor, Tensor], Tensor]
    ) -> None:
        super().__init__()
        self.net, self.loss = net, loss

    def forward(self, x: Tensor) -> Tensor:
        return self.loss(self.net(x), x)


def squares(y: Tensor, x: Tensor) -> Tensor:
    """A loss for anything."""
    return y.square().mean()


def next_words(y: Tensor, text: Tensor) -> Tensor:
    """A loss of words."""
    return F.cross_entropy(y.flatten(0, 1), text.flatten())


class Patches(nn.Module):
    """An image as a sequence."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.cut = nn.Conv2d(3, width, size, size)

    def forward(self, x: Tensor) -> Tensor:
        return self.cut(x).flatten(2).transpose(1, 2)


class Block(nn.Module):
    """A block of a transformer with PyTorch's fused attention."""

    def __init__(
        self, width: int, heads: int = 4, causal: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.read, self.write = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads, self.causal, self.dropout = heads, causal, dropout

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        shape = (batch, length, 3, self.heads, width // self.heads)
        q, k, v = self.read(self.first(x)).view(shape).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(
            q, k, v, dropout_p=self.dropout, is_causal=self.causal
        )
        seen = self.write(seen.transpose(1, 2).reshape(batch, length, width))
        x = x + F.dropout(seen, self.dropout)
        return x + self.down(F.gelu(self.up(self.second(x))))


class Convolutions(nn.Module):
    """Two normalised convolutions."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(width, out, 3, padding=1)
        self.two = nn.Conv2d(out, out, 3, padding=1)
        self.norm1, self.norm2 = nn.GroupNorm(4, out), nn.GroupNorm(4, out)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm2(self.two(F.relu(self.norm1(self.one(x))))))


class UNet(nn.Module):
    """A U-Net: the results of its way down are read on its way up."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        sizes = [3, *(width * 2**k for k in range(depth + 1))]
        self.down = nn.ModuleList(Convolutions(a, b) for a, b in pairwise(sizes))
        ups = list(pairwise(reversed(sizes[1:])))
        self.lift = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in ups)
        self.up = nn.ModuleList(Convolutions(2 * b, b) for _, b in ups)

    def forward(self, x: Tensor) -> Tensor:
        across: list[Tensor] = []
        for block in self.down:
            x = block(x if not across else F.max_pool2d(x, 2))
            across.append(x)
        across.pop()
        for lift, block in zip(self.lift, self.up, strict=True):
            x = block(torch.cat([lift(x), across.pop()], 1))
        return x


class Mamba(nn.Module):
    """Blocks of a selective scan, written as a loop."""

    def __init__(self, width: int, state: int) -> None:
        super().__init__()
        self.norm, self.enter = nn.LayerNorm(width), nn.Linear(width, 2 * width)
        self.steps = nn.Linear(width, width)
        self.reads = nn.Linear(width, 2 * state)
        self.decay = nn.Parameter(torch.rand(width, state))
        self.leave = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        u, gate = self.enter(self.norm(x)).chunk(2, -1)
        u = F.silu(u)
        step, (b, c) = F.softplus(self.steps(u)), self.reads(u).chunk(2, -1)
        h = torch.zeros(x.shape[0], *self.decay.shape, device=x.device)
        seen: list[Tensor] = []
        for t in range(x.shape[1]):
            rate = step[:, t, :, None]
            new = rate * u[:, t, :, None] * b[:, t, None]
            h = torch.exp(-rate * self.decay) * h + new
            seen.append((h * c[:, t, None]).sum(-1))
        return x + self.leave(torch.stack(seen, 1) * F.silu(gate))


class FFT(nn.Module):
    """Blocks that multiply spectra."""

    def __init__(self, width: int, length: int, layers: int) -> None:
        super().__init__()
        size = (layers, length // 2 + 1, width)
        self.filters = nn.Parameter(torch.randn(size, dtype=torch.cfloat))
        self.mix = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for filters, mix in zip(self.filters, self.mix, strict=True):
            waves = torch.fft.rfft(x, dim=1) * filters
            x = x + mix(F.gelu(torch.fft.irfft(waves, n=x.shape[1], dim=1)))
        return x


class Cells(nn.Module):
    """An LSTM cell in a loop: thousands of small operators."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(width, width)

    def forward(self, x: Tensor) -> Tensor:
        h = c = torch.zeros_like(x[0])
        for each in x:
            h, c = self.cell(each, (h, c))
        return h


def gpt(full: bool) -> Program:
    layers, width, length = (12, 256, 192) if full else (6, 64, 64)
    net = nn.Sequential(*[First(GPTBlock(width, 4)) for _ in range(layers)])
    return of(net, torch.randn(2, length, width))


def vit(full: bool) -> Program:
    layers, width, size = (12, 192, 128) if full else (6, 64, 64)
    layer = nn.TransformerEncoderLayer
    blocks = [layer(width, 4, 4 * width, batch_first=True) for _ in range(layers)]
    return of(nn.Sequential(Patches(width, 8), *blocks), torch.randn(4, 3, size, size))


def unet(full: bool) -> Program:
    width, depth, size = (32, 4, 128) if full else (16, 3, 32)
    return of(UNet(width, depth), torch.randn(4, 3, size, size))


def lstm(full: bool) -> Program:
    layers, steps, width = (6, 200, 256) if full else (6, 40, 64)
    net = nn.LSTM(width, width, num_layers=layers)
    return of(net, torch.randn(steps, 16, width))


def mamba(full: bool) -> Program:
    layers, width, length = (6, 64, 64) if full else (2, 32, 24)
    net = nn.Sequential(*[Mamba(width, 16) for _ in range(layers)])
    return of(net, torch.randn(4, length, width))


MODELS = {"gpt": gpt, "vit": vit, "unet": unet, "lstm": lstm, "mamba": mamba}
SMALL: dict[str, Callable[[], Program]] = {
    **{name: lambda make=make: make(False) for name, make in MODELS.items()},
    "fft": lambda: of(FFT(64, 128, 8), torch.randn(8, 128, 64)),
    "cells": lambda: of(Cells(128), torch.randn(100, 16, 128)),
}

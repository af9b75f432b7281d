"""Programs that show what only a GPU has: generators, streams, kernels with rooms."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from benchmarks.torch.allocator import DEVICE, ON_CUDA
from benchmarks.torch.programs import Block, Program, of
from torch import Tensor, nn


def attention(dtype: torch.dtype, dropout: float = 0.1) -> Program:
    """Fused attention, with dropout inside of the kernel."""
    blocks = [Block(256, dropout=dropout) for _ in range(8)]
    model = nn.Sequential(*blocks).to(DEVICE, dtype)
    return of(model, torch.randn(8, 256, 256, device=DEVICE, dtype=dtype))


def autocast() -> Program:
    model = nn.Sequential(*(Block(256, dropout=0.1) for _ in range(8))).to(DEVICE)
    under = lambda: torch.autocast(DEVICE, torch.bfloat16)  # noqa: E731
    return of(model, torch.randn(8, 256, 256, device=DEVICE), under)


def convolutions() -> Program:
    """Batch norm, channels last, and whichever algorithm cuDNN takes."""
    parts: list[nn.Module] = []
    for _ in range(8):
        parts += [nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(True)]
    model = nn.Sequential(*parts).to(DEVICE, memory_format=torch.channels_last)
    x = torch.randn(16, 32, 64, 64, device=DEVICE)
    return of(model, x.to(memory_format=torch.channels_last))


def recurrent() -> Program:
    """cuDNN's LSTM, with its own dropout and its reserve."""
    net = nn.LSTM(128, 128, num_layers=3, dropout=0.2, batch_first=True).to(DEVICE)
    return of(net, torch.randn(32, 100, 128, device=DEVICE))


def embedding() -> Program:
    """Gradients that are added up by atomic operations, and a loss over words."""
    table, head = nn.Embedding(1000, 256).to(DEVICE), nn.Linear(256, 1000).to(DEVICE)
    text = torch.randint(0, 1000, (16, 128), device=DEVICE)

    def loss() -> Tensor:
        x = table(text)
        for _ in range(6):
            x = x + F.gelu(F.dropout(x, 0.1)) * 0.5
        return F.cross_entropy(head(x).flatten(0, 1), text.flatten())

    return Program(loss, [*table.parameters(), *head.parameters()])


def generators() -> Program:
    """A generator of one's own beside the default one, and one of the CPU."""
    weight = torch.randn(512, 512, device=DEVICE, requires_grad=True)
    own, host = torch.Generator(DEVICE), torch.Generator()
    x = torch.randn(256, 512, device=DEVICE)

    def loss() -> Tensor:
        own.manual_seed(3)
        host.manual_seed(4)
        y = x
        for _ in range(12):
            noise = torch.randn(y.shape, device=DEVICE, generator=own)
            there = torch.randn(y.shape, generator=host).to(DEVICE, non_blocking=True)
            y = torch.tanh(F.dropout(y @ weight / 23, 0.2) + 0.1 * noise * there)
            y = y + 0.01 * torch.bernoulli(torch.full_like(y, 0.5))
        return y.square().mean()

    return Program(loss, [weight])


def streams() -> Program:
    """Half of each layer on a stream of its own."""
    first, second = (
        torch.randn(512, 512, device=DEVICE, requires_grad=True) for _ in range(2)
    )
    x = torch.randn(1024, 512, device=DEVICE)
    side = torch.cuda.Stream() if ON_CUDA else None

    def loss() -> Tensor:
        y = x
        for _ in range(10):
            if side is None:
                other = torch.tanh(y @ second / 23)
            else:
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    other = torch.tanh(y @ second / 23)
                torch.cuda.current_stream().wait_stream(side)
            y = torch.tanh(y @ first / 23) + other
        return y.square().mean()

    return Program(loss, [first, second])


def in_place() -> Program:
    """Buffers that are written by slices, and counters on the device."""
    weight = torch.randn(256, 256, device=DEVICE, requires_grad=True)
    x = torch.randn(512, 256, device=DEVICE)

    def loss() -> Tensor:
        y, rows = x, torch.zeros(12, 512, 256, device=DEVICE)
        count = torch.zeros((), device=DEVICE)
        for i in range(12):
            y = torch.relu_(y @ weight / 16 + count)
            rows[i].copy_(y)
            count += 0.1
        return rows.square().mean() + (rows.sum(0) * y).mean()

    return Program(loss, [weight])


def scaled() -> Program:
    """Float16, whose gradients a scaler keeps from vanishing."""
    model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(16))).to(DEVICE)
    under = lambda: torch.autocast(DEVICE, torch.float16)  # noqa: E731
    made = of(model, torch.randn(2048, 512, device=DEVICE), under)
    return made._replace(loss=lambda: made.loss() * 1024)


def algebra() -> Program:
    """cuSOLVER and cuFFT, which take room inside of their kernels."""
    weight = torch.randn(256, 256, device=DEVICE, requires_grad=True)
    eye = torch.eye(256, device=DEVICE)

    def loss() -> Tensor:
        y = weight
        for _ in range(6):
            square = y @ y.T / 256 + 2 * eye
            y = torch.linalg.solve(square, y) + torch.linalg.cholesky(square)
            y = torch.fft.irfft2(torch.fft.rfft2(y) * 0.9, s=(256, 256))
        return y.square().mean()

    return Program(loss, [weight])


PROGRAMS: dict[str, Callable[[], Program]] = {
    "attention-float32": lambda: attention(torch.float32),
    "attention-bfloat16": lambda: attention(torch.bfloat16),
    "attention-no-dropout": lambda: attention(torch.bfloat16, 0.0),
    **{
        f.__name__: f
        for f in (
            autocast, convolutions, recurrent, embedding, generators, streams,
            in_place, scaled, algebra,
        )
    },
}  # fmt: skip

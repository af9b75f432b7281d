"""What only a GPU can show: generators, streams, kernels, copies to the host, budgets.

    python -m benchmarks.torch.on_cuda [NAME ...]

Each program is run plainly, twice, and then in several budgets, several times: loss,
gradients and the state of CUDA's generator afterwards must be those of the plain run to
the bit (where the two plain runs agree), and the caching allocator's peak within the
budget. With `store="cpu"` snapshots go to page-locked memory on a stream of their own.
Rows that end in "+" were above their budget, "NOT THE SAME" says what differs.
"""

import sys
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from benchmarks.torch.allocator import DEVICE, ON_CUDA, peak_bytes
from torch import Tensor, nn

import retape.torch
from retape import BudgetError

RUNS = 4
SHARES = (0.8, 0.5, 0.3)
"""Between the least and all of it."""


class Program(NamedTuple):
    """A loss, and the parameters by which it is differentiated."""

    loss: Callable[[], Tensor]
    parameters: list[Tensor]


def _over(model: nn.Module, x: Tensor, under: Any = None) -> Program:
    def loss() -> Tensor:
        if under is None:
            return model(x).float().square().mean()
        with under():
            return model(x).float().square().mean()

    return Program(loss, list(model.parameters()))


class Attention(nn.Module):
    """A block by PyTorch's fused attention, with dropout inside of the kernel."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm, self.read = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.write, self.dropout = nn.Linear(width, width), dropout

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = (
            self.read(self.norm(x)).view(b, t, 3, 4, c // 4).permute(2, 0, 3, 1, 4)
        )
        y = F.scaled_dot_product_attention(
            q, k, v, dropout_p=self.dropout, is_causal=True
        )
        return x + F.dropout(self.write(y.transpose(1, 2).reshape(b, t, c)), 0.1)


def attention(dtype: torch.dtype, dropout: float = 0.1) -> Program:
    blocks = [Attention(256, dropout) for _ in range(8)]
    model = nn.Sequential(*blocks).to(DEVICE, dtype)
    return _over(model, torch.randn(8, 256, 256, device=DEVICE, dtype=dtype))


def autocast() -> Program:
    model = nn.Sequential(*(Attention(256, 0.1) for _ in range(8))).to(DEVICE)
    under = lambda: torch.autocast(DEVICE, torch.bfloat16)  # noqa: E731
    return _over(model, torch.randn(8, 256, 256, device=DEVICE), under)


def convolutions() -> Program:
    """Batch norm, channels last, and whichever algorithm cuDNN takes."""
    parts: list[nn.Module] = []
    for _ in range(8):
        parts += [nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(True)]
    model = nn.Sequential(*parts).to(DEVICE, memory_format=torch.channels_last)
    x = torch.randn(16, 32, 64, 64, device=DEVICE)
    return _over(model, x.to(memory_format=torch.channels_last))


def recurrent() -> Program:
    """cuDNN's LSTM, with its own dropout and its reserve."""
    net = nn.LSTM(128, 128, num_layers=3, dropout=0.2, batch_first=True).to(DEVICE)
    x = torch.randn(32, 100, 128, device=DEVICE)
    return Program(lambda: net(x)[0].square().mean(), list(net.parameters()))


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
    """Float16 under a scaler of gradients."""
    model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(16))).to(DEVICE)
    x = torch.randn(2048, 512, device=DEVICE)

    def loss() -> Tensor:
        with torch.autocast(DEVICE, torch.float16):
            return model(x).float().square().mean() * 1024

    return Program(loss, list(model.parameters()))


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
    "attention, float32": lambda: attention(torch.float32),
    "attention, bfloat16": lambda: attention(torch.bfloat16),
    "attention, no dropout": lambda: attention(torch.bfloat16, 0.0),
    "autocast": autocast,
    "convolutions": convolutions,
    "recurrent": recurrent,
    "embedding": embedding,
    "generators": generators,
    "streams": streams,
    "in place": in_place,
    "scaled": scaled,
    "algebra": algebra,
}


def train(run: Callable[[], Tensor]) -> Tensor:
    """Forward and backward from a fixed seed; the loss."""
    torch.manual_seed(1)
    value = run()
    value.backward()
    return value.detach()


def outcome(value: Tensor, program: Program) -> list[Tensor]:
    """Loss, gradients, and where the generators are; gradients are zero again."""
    states = [torch.get_rng_state()]
    states += [torch.cuda.get_rng_state()] if ON_CUDA else []
    gradients = []
    for each in program.parameters:
        assert each.grad is not None
        gradients.append(each.grad.clone())
        each.grad.zero_()
    return [value, *gradients, *states]


def differing(found: list[Tensor], expected: list[Tensor]) -> list[str]:
    """Names of what differs: the loss, gradients by number, generators."""
    pairs = zip(found, expected, strict=True)
    names = [i for i, (a, b) in enumerate(pairs) if not torch.equal(a, b)]
    states = len(expected) - (2 if ON_CUDA else 1)
    return [
        "loss" if i == 0 else f"gradient {i}" if i < states else "generator"
        for i in names
    ]


def rows(program: Program) -> list[str]:
    """What a program's budgets came to."""
    for each in program.parameters:
        each.grad = torch.zeros_like(each)
    plain = outcome(train(program.loss), program)
    noise = differing(outcome(train(program.loss), program), plain)
    most = peak_bytes(lambda: train(program.loss))
    outcome(program.parameters[0], program)
    told = [f"plain {most / 1e6:.1f} MB"]
    if noise:
        told.append(f"plain itself differs: {', '.join(noise[:3])}")
    least = _least(program)
    for share in SHARES:
        told.append(_budget(program, plain, noise, int(least + share * (most - least))))
    told.append(_budget(program, plain, noise, least))
    told.append(_budget(program, plain, noise, (least + most) // 2, store="cpu"))
    told.append(_budget(program, plain, noise, None, snapshots=3, stage=8, verify=True))
    return told


def _least(program: Program) -> int:
    try:
        retape.torch.recompute(memory=1)(program.loss)()
    except BudgetError as error:
        return error.least or 1
    return 1


def _budget(
    program: Program, plain: list[Tensor], noise: list[str], memory: int | None,
    **options: Any,
) -> str:  # fmt: skip
    """A row for one budget: the highest peak of some runs, and what differed."""
    name = f"{memory / 1e6:.1f}" if memory else "plan"
    name += "".join(f" {key}" for key in options if key in ("store", "verify"))
    if memory is not None:
        options["memory"] = memory
    run, peak, wrong = retape.torch.recompute(**options), 0, set[str]()
    under = run(program.loss)
    for _ in range(RUNS):
        try:
            values: list[Tensor] = []
            peak = max(peak, peak_bytes(partial(_append, values, under)))
            wrong |= set(differing(outcome(values[0], program), plain)) - set(noise)
        except Exception as error:  # noqa: BLE001
            return f"{name}: {type(error).__name__}: {str(error)[:150]}"
    held = peak <= (memory or peak)
    text = f"{name}: {peak / 1e6:.1f}{'' if held else '+'} again "
    text += f"{run.report.recomputed}/{run.report.steps}"
    return text + (f" NOT THE SAME: {sorted(wrong)[:4]}" if wrong else "")


def _append(values: list[Tensor], loss: Callable[[], Tensor]) -> None:
    values.append(train(loss))


def main(names: list[str]) -> None:
    warnings.simplefilter("ignore")
    torch.use_deterministic_algorithms(True, warn_only=True)
    for name in names or PROGRAMS:
        torch.manual_seed(0)
        print(f"{name:24}", flush=True)
        try:
            print(*(f"    {row}" for row in rows(PROGRAMS[name]())), sep="\n")
        except Exception:
            traceback.print_exc(limit=-4, file=sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])

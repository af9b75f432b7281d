"""Memory against recomputation over 20 budgets for five models: is it monotone?

    python -m benchmarks.torch.curves [--svg FILE] [--dark] [--full] [--fresh]
        [--estimated] [MODEL ...]

For each budget from the least to plain: the peak that the CPU allocator counted, the
share of the forward that was run again, by cost (multiplications of products, bytes of
the rest), in the first run and in a later one, and processor time of a later run over
that of the plain one. Then, for each model, by how much a larger budget ever cost more
than a smaller one. `--svg` draws it, `--dark` for a dark ground. `--full` takes larger
models. With `--fresh` each budget is as in a process of its own: what runs in others
have shown is forgotten. With `--estimated`, too, but for what `retape.torch.estimate`
has found before.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from benchmarks.harness import least as seconds
from benchmarks.torch.allocator import peak_bytes, ready_gradients
from torch import Tensor, nn

import retape.torch
from retape._errors import BudgetError, UnsupportedError
from retape.engines.eager.analysis._operator_cost import step_costs
from retape.engines.eager.plan._learned import forget_lessons
from retape.engines.eager.replay import _backward

COUNT = 20
RUNS = 4
COLOURS = ("#1b6ca8", "#c8553d", "#588157", "#7b2cbf", "#b08900")
ON_DARK = ("#6cb2e8", "#ee8a74", "#9cc59a", "#c08cf0", "#e0bb3f")


class Program(NamedTuple):
    """A loss to differentiate, and what gets gradients."""

    loss: Callable[[], Tensor]
    parameters: list[Tensor]


class Point(NamedTuple):
    """One budget: `first` and `later` are shares of the forward that is run again."""

    budget: int
    first: float
    later: float
    peak: int
    time: float


class Costs:
    """Counts the cost of what is run again, of the latest run."""

    def __init__(self) -> None:
        self.again = self.total = 0
        replay = _backward.Sweep._replay

        def counted(sweep: _backward.Sweep, wanted: set[int]) -> dict[int, Tensor]:
            trace = sweep._run.trace
            if self._trace is not trace:
                self._trace, self._costs = trace, step_costs(trace)
                self.total = sum(self._costs)
            needed = _backward.needed_steps(trace, wanted)
            self.again += sum(self._costs[index] for index in needed)
            return replay(sweep, wanted)

        self._trace: object = None
        self._costs: Sequence[int] = ()
        _backward.Sweep._replay = counted  # type: ignore[method-assign]

    def share(self) -> float:
        """The share since it was asked for the last time."""
        found = self.again / self.total if self.again else 0.0
        self.again, self._trace = 0, None
        return found


def gpt(full: bool) -> Program:
    from benchmarks.torch.workloads import GPTBlock

    layers, width, length = (12, 256, 192) if full else (6, 64, 64)
    net = nn.Sequential(*[_Taken(GPTBlock(width, 4)) for _ in range(layers)])
    return _program(net, torch.randn(2, length, width))


class _Taken(nn.Module):
    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Tensor) -> Tensor:
        return self.block(x)[0]


class ViT(nn.Module):
    """Patches, and an encoder with fused attention."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        layer = nn.TransformerEncoderLayer
        self.layers = nn.Sequential(
            *[layer(width, 4, 4 * width, batch_first=True) for _ in range(layers)]
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(self.patches(x).flatten(2).transpose(1, 2))


def vit(full: bool) -> Program:
    layers, width, size = (12, 192, 128) if full else (6, 64, 64)
    return _program(ViT(layers, width), torch.randn(4, 3, size, size))


class Block(nn.Module):
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
        self.down = nn.ModuleList(Block(a, b) for a, b in pairwise(sizes))
        ups = list(pairwise(reversed(sizes[1:])))
        self.lift = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in ups)
        self.up = nn.ModuleList(Block(2 * b, b) for _, b in ups)

    def forward(self, x: Tensor) -> Tensor:
        across: list[Tensor] = []
        for block in self.down:
            x = block(x if not across else F.max_pool2d(x, 2))
            across.append(x)
        across.pop()
        for lift, block in zip(self.lift, self.up, strict=True):
            x = block(torch.cat([lift(x), across.pop()], 1))
        return x


def unet(full: bool) -> Program:
    width, depth, size = (32, 4, 128) if full else (16, 3, 32)
    return _program(UNet(width, depth), torch.randn(4, 3, size, size))


def lstm(full: bool) -> Program:
    layers, steps, width = (6, 200, 256) if full else (6, 40, 64)
    net = nn.LSTM(width, width, num_layers=layers)
    return _program(net, torch.randn(steps, 16, width))


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
        h = torch.zeros(x.shape[0], *self.decay.shape)
        seen: list[Tensor] = []
        for t in range(x.shape[1]):
            rate = step[:, t, :, None]
            h = (
                torch.exp(-rate * self.decay) * h
                + rate * u[:, t, :, None] * b[:, t, None]
            )
            seen.append((h * c[:, t, None]).sum(-1))
        return x + self.leave(torch.stack(seen, 1) * F.silu(gate))


def mamba(full: bool) -> Program:
    layers, width, length = (6, 64, 64) if full else (2, 32, 24)
    net = nn.Sequential(*[Mamba(width, 16) for _ in range(layers)])
    return _program(net, torch.randn(4, length, width))


def _program(net: nn.Module, x: Tensor) -> Program:
    def loss() -> Tensor:
        y = net(x)
        return (y[0] if isinstance(y, tuple) else y).square().mean()

    return Program(loss, list(net.parameters()))


MODELS = {"gpt": gpt, "vit": vit, "unet": unet, "lstm": lstm, "mamba": mamba}


def least(program: Program) -> int:
    """The least budget, as the error tells it."""
    memory = 1
    while True:
        try:
            with retape.torch.recompute(memory=memory):
                _alive = program.loss()
            return memory
        except BudgetError as error:
            assert error.least is not None
            memory = error.least


def curve(
    program: Program,
    costs: Costs,
    count: int = COUNT,
    fresh: bool = False,
    estimated: bool = False,
) -> Iterator[Point]:
    """Measure budgets in equal steps from the least to what the plain run takes."""
    ready_gradients(program.parameters)

    def plain() -> None:
        program.loss().backward()

    plain()
    most, base, low = peak_bytes(plain), seconds(plain), least(program)
    for k in range(count):
        budget = low + max(0, most - low) * k // (count - 1)
        if fresh or estimated:
            forget_lessons()
        if estimated:
            retape.torch.estimate(program.loss)
        under = retape.torch.recompute(memory=budget)(program.loss)

        def step(under: Callable[[], Tensor] = under) -> None:
            under().backward()

        costs.share()
        peaks, shares = list[int](), list[float]()
        for _ in range(RUNS):
            peaks.append(peak_bytes(step))
            shares.append(costs.share())
        time = seconds(step, 2) / base
        costs.share()
        yield Point(budget, shares[0], shares[-1], max(peaks), time)


def rises(shares: Sequence[float]) -> float:
    """By how much a larger budget costs more than a smaller one, at the worst."""
    best = accumulate(shares, min)
    return max(now - low for now, low in zip(shares, best, strict=True))


def drawing(curves: dict[str, list[Point]], dark: bool = False) -> str:
    """An SVG: the share of the forward run again, over budgets relative to the most.

    Later runs are whole lines and first runs broken ones; more than 3 is drawn as 3.
    """
    ink, colours = ("#ddd", ON_DARK) if dark else ("#333", COLOURS)
    wide, high, top = 640, 360, 3.0
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high + 40}" '
        f'font-family="sans-serif" font-size="13" fill="{ink}">',
        f'<path d="M50 10V{high}H{wide - 10}" fill="none" stroke="{ink}"/>',
        f'<text x="{wide // 2 - 110}" y="{high + 32}">budget / what plain takes</text>',
        '<text x="-210" y="14" transform="rotate(-90)">forward run again</text>',
    ]
    for each in range(4):
        y = high - each / top * (high - 20)
        parts.append(f'<text x="30" y="{y:.0f}">{each}</text>')
    for each in range(0, 101, 25):
        x = 50 + each / 100 * (wide - 70)
        parts.append(f'<text x="{x - 10:.0f}" y="{high + 15}">{each} %</text>')
    for k, (name, points) in enumerate(curves.items()):
        for shares, dash in (("later", ""), ("first", ' stroke-dasharray="3 3"')):
            at = " ".join(
                f"{50 + p.budget / points[-1].budget * (wide - 70):.1f},"
                f"{high - min(top, getattr(p, shares)) / top * (high - 20):.1f}"
                for p in points
            )
            stroke = f'fill="none" stroke="{colours[k]}"{dash}'
            parts.append(f'<polyline points="{at}" {stroke}/>')
        parts.append(
            f'<text x="{wide - 90}" y="{30 + 18 * k}" fill="{colours[k]}">{name}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def _unless_refused(points: Iterator[Point]) -> Iterator[Point]:
    """The points, or why there are none: an LSTM cannot be estimated on a CPU."""
    try:
        yield from points
    except UnsupportedError as error:
        print(f"        {error}")


def main(arguments: list[str]) -> None:
    torch.set_num_threads(1)
    retape.torch.accelerate()
    costs, curves = Costs(), dict[str, list[Point]]()
    names = [each for each in arguments if each in MODELS] or list(MODELS)
    for name in names:
        torch.manual_seed(0)
        points = curves[name] = []
        print(f"\n{name:6s}  budget MB  peak MB  first  later   time")
        program, fresh = MODELS[name]("--full" in arguments), "--fresh" in arguments
        estimated = "--estimated" in arguments
        measured = curve(program, costs, fresh=fresh, estimated=estimated)
        for point in _unless_refused(measured):
            points.append(point)
            print(
                f"{point.budget / 1e6:17.3f} {point.peak / 1e6:8.3f} {point.first:6.2f}"
                f" {point.later:6.2f} {point.time:6.2f}"
                f"{'  OVER' if point.peak > point.budget else ''}",
                flush=True,
            )
        if not points:
            del curves[name]
            continue
        worst = [rises([getattr(p, run) for p in points]) for run in ("first", "later")]
        print(f"        the most that more memory cost more: first {worst[0]:.3f}, "
              f"later {worst[1]:.3f}")  # fmt: skip
    if "--svg" in arguments:
        path = Path(arguments[arguments.index("--svg") + 1])
        path.write_text(drawing(curves, "--dark" in arguments), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

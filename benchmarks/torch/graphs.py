"""Graphs of which plans are judged: traced models, layered ones, and those of files."""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from retape.engines.eager.compiled._backends import compile_graph
from retape.engines.eager.compiled._joint import Joint
from retape.engines.eager.compiled._node_traits import flops, traffic
from retape.engines.eager.compiled._partition import partition


class Problem(NamedTuple):
    """A graph, what its compiler saves by itself, and what one step costs."""

    joint: Joint
    usual: frozenset[int]
    total: int


class Mixer(nn.Module):
    """A block of an MLP-Mixer."""

    def __init__(self, patches: int, width: int) -> None:
        super().__init__()
        self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)
        self.across = self._mlp(patches)
        self.within = self._mlp(width)

    @staticmethod
    def _mlp(width: int) -> nn.Module:
        up, down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        return nn.Sequential(up, nn.GELU(), down)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.across(self.one(x).transpose(1, 2)).transpose(1, 2)
        return x + self.within(self.two(x))


class Spectral(nn.Module):
    """A layer of a Fourier operator."""

    def __init__(self, width: int, modes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width, modes, 2) / width)
        self.beside, self.modes = nn.Conv1d(width, width, 1), modes

    def forward(self, x: Tensor) -> Tensor:
        waves = torch.fft.rfft(x)[..., : self.modes]
        mixed = torch.einsum("bim,iom->bom", waves, torch.view_as_complex(self.weight))
        return F.gelu(torch.fft.irfft(mixed, n=x.shape[-1]) + self.beside(x))


class Residual(nn.Module):
    """A block of a ResNet."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.two = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.norm2(self.two(F.relu(self.norm1(self.one(x))))))


def models() -> dict[str, Callable[[], tuple[nn.Module, Tensor]]]:
    """The models, by name; each is made when it is asked for."""
    from benchmarks.torch.compiled import Block
    from benchmarks.torch.curves import UNet

    def stack(*layers: nn.Module) -> nn.Module:
        return nn.Sequential(*layers)

    return {
        "gpt": lambda: (
            stack(*[Block(64, 4, True) for _ in range(3)]), torch.randn(4, 64, 64)
        ),
        "gpt-24": lambda: (
            stack(*[Block(64, 4, True) for _ in range(24)]), torch.randn(4, 64, 64)
        ),
        "resnet": lambda: (
            stack(nn.Conv2d(3, 16, 3, padding=1), *[Residual(16) for _ in range(4)]),
            torch.randn(8, 3, 16, 16),
        ),
        "unet": lambda: (UNet(8, 2), torch.randn(4, 3, 32, 32)),
        "fft": lambda: (
            stack(*[Spectral(16, 12) for _ in range(5)]), torch.randn(8, 16, 128)
        ),
        "mixer": lambda: (
            stack(*[Mixer(32, 64) for _ in range(4)]), torch.randn(16, 32, 64)
        ),
    }  # fmt: skip


def traced(model: nn.Module, x: Tensor) -> Problem:
    """The joint graph that the compiler makes of a model and a loss."""
    found: list[Problem] = []

    def choose(joint: Joint, usual: list[Any]) -> list[Any]:
        place = {node: k for k, node in enumerate(joint.nodes)}
        late = [n for n, b in zip(joint.nodes, joint.backward, strict=True) if b]
        total = sum(joint.cost) + sum(flops(n) + traffic(n) for n in late)
        found.append(Problem(joint, frozenset(place[n] for n in usual), total))
        return usual

    def split(graph: Any, inputs: Any, **options: Any) -> Any:
        return partition(graph, inputs, choose, **options)

    def backend(graph: Any, inputs: Any) -> Any:
        return compile_graph("aot_eager", graph, inputs, split, {})

    torch._dynamo.reset()
    loss = torch.compile(  # type: ignore[call-overload]
        lambda x: model(x).square().mean(), backend=backend, fullgraph=True
    )
    loss(x)
    return found[0]


def layered(count: int, seed: int = 0) -> Problem:
    """A random graph in layers, after the description in the paper: our own generator.

    Layers are about 0.3 times the root of the count wide, most edges go to the next
    layer, some skip; bytes and costs are drawn. Its backward is written out.
    """
    rng = random.Random(seed)
    width = max(2, round(0.3 * count**0.5))
    layers: list[list[int]] = []
    while sum(map(len, layers)) < count:
        start = sum(map(len, layers))
        size = min(max(1, round(width * rng.uniform(0.25, 1.75))), count - start)
        layers.append(list(range(start, start + size)))
    reads: list[list[int]] = [[] for _ in range(count)]
    for number in range(1, len(layers)):
        earlier = [k for layer in layers[: number - 1] for k in layer]
        for k in layers[number]:
            near = [j for j in layers[number - 1] if rng.random() < 0.5]
            near = near or [rng.choice(layers[number - 1])]
            skip = [rng.choice(earlier)] if earlier and rng.random() < 0.14 else []
            reads[k] = sorted({*near, *skip})
    sizes = [rng.randint(1, 50) for _ in range(count)]
    costs = [rng.randint(1, 50) for _ in range(count)]
    return with_backward(reads, sizes, costs)


def from_file(path: Path) -> Problem:
    """A forward graph out of node-link JSON, with its backward written out.

    Nodes that are marked `backward` in it are left out: ours is in their place.
    """
    read = json.loads(path.read_text("utf-8"))
    nodes = [each for each in read["nodes"] if not each.get("backward")]
    order = {each["id"]: k for k, each in enumerate(nodes)}
    reads: list[list[int]] = [[] for _ in nodes]
    for edge in read.get("links", read.get("edges", [])):
        source, target = (
            edge.get("source", edge.get("0")),
            edge.get("target", edge.get("1")),
        )
        if source in order and target in order:
            if order[source] >= order[target]:
                raise SystemExit(f"{path}: its nodes are not in the order of running")
            reads[order[target]].append(order[source])

    def numbers(*names: str) -> list[int]:
        return [round(next(each[n] for n in names if n in each)) for each in nodes]

    sizes = numbers("cost_ram", "out_cost")
    return with_backward(reads, sizes, numbers("cost_cpu", "duration"))


def with_backward(
    reads: Sequence[Sequence[int]], sizes: Sequence[int], costs: Sequence[int]
) -> Problem:
    """A graph and its backward: each node's reads what the node read and made.

    A node of the backward makes the cotangents of what its node read, and costs twice.
    """
    count = len(reads)
    users: list[list[int]] = [[] for _ in range(count)]
    for k, each in enumerate(reads):
        for j in each:
            users[j].append(k)
    start = count + 1  # after the cotangent
    late = {k: start + count - 1 - k for k in range(count)}
    inputs: list[list[int]] = [*map(list, reads), []]
    for k in reversed(range(count)):
        above = [late[u] for u in users[k]] or [count]
        inputs.append([*reads[k], k, *above])
    made = [[k] for k in range(2 * count + 1)]
    names = ["call_function"] * count + ["placeholder"] + ["call_function"] * count
    backward = [k >= count for k in range(2 * count + 1)]
    nbytes = [*sizes, 0, *(sizes[k] for k in reversed(range(count)))]
    both = [*costs, 0, *([0] * count)]
    ends = [k for k in range(count) if not users[k]]
    joint = Joint(
        nodes=[SimpleNamespace(op=n, name=str(k)) for k, n in enumerate(names)],  # type: ignore[misc]
        inputs=inputs, storages=made, made=made, nbytes=nbytes,
        workspace=[0] * len(made), backward=backward, given=[False] * len(made),
        view=[False] * len(made), savable=[True] * len(made), pure=[True] * len(made),
        flops=both, cost=both, needed=list(range(count)), outputs=ends,
        gradients=[late[0]], first=start,
    )  # fmt: skip
    return Problem(joint, joint.direct, 3 * sum(costs))

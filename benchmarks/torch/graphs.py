"""Graphs of which plans are judged: of small models, as PyTorch traces them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from benchmarks.torch.programs import FFT, Block, First, UNet
from benchmarks.torch.workloads import Residual
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


def _resnet() -> nn.Module:
    first = nn.Conv2d(3, 16, 3, padding=1)
    return nn.Sequential(first, *[First(Residual(16, 16, 1)) for _ in range(4)])


MODELS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "gpt": lambda: (
        nn.Sequential(*[Block(64) for _ in range(3)]), torch.randn(4, 64, 64)
    ),
    "resnet": lambda: (_resnet(), torch.randn(8, 3, 16, 16)),
    "unet": lambda: (UNet(8, 2), torch.randn(4, 3, 32, 32)),
    "fft": lambda: (FFT(16, 128, 5), torch.randn(8, 128, 16)),
    "mixer": lambda: (
        nn.Sequential(*[Mixer(32, 64) for _ in range(4)]), torch.randn(16, 32, 64)
    ),
}  # fmt: skip


def asked_of(function: Callable[..., Tensor], *args: Any) -> tuple[Joint, list[Any]]:
    """The graph that a partitioner is given, and what is usually saved of it."""
    found: list[tuple[Joint, list[Any]]] = []

    def choose(joint: Joint, usual: list[Any]) -> list[Any]:
        found.append((joint, usual))
        return usual

    def split(graph: Any, inputs: Any, **options: Any) -> Any:
        return partition(graph, inputs, choose, **options)

    def backend(graph: Any, inputs: Any) -> Any:
        return compile_graph("aot_eager", graph, inputs, split, {})

    torch._dynamo.reset()
    compiled: Any = torch.compile(function, backend=backend, fullgraph=True)  # type: ignore[call-overload]
    compiled(*args)
    return found[0]


def traced(model: nn.Module, x: Tensor) -> Problem:
    """The joint graph of a model and a loss."""
    joint, usual = asked_of(lambda x: model(x).square().mean(), x)
    late = [n for n, b in zip(joint.nodes, joint.backward, strict=True) if b]
    total = sum(joint.cost) + sum(flops(n) + traffic(n) for n in late)
    return Problem(joint, frozenset(map(joint.nodes.index, usual)), total)

"""Joint graphs of small functions, as the compiler would make them: one seam.

A front of plans is compared with all the plans that there are, which only a graph and
its count can tell. `CompilerBudget` shows of a front the one plan that it takes.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn

from retape.engines.eager.compiled._backends import compile_graph
from retape.engines.eager.compiled._closure import closure
from retape.engines.eager.compiled._front import front as front
from retape.engines.eager.compiled._liveness import account as account
from retape.engines.eager.compiled._partition import partition


class Seen:
    """What the partitioner was asked: the graph, and what is usual."""

    joint: Any
    usual: frozenset[int]
    free: frozenset[int]


def seen(function: Callable[..., Tensor], *args: Any) -> Seen:
    """Compile a function and run it; hand out its joint graph."""
    found = Seen()

    def choose(joint: Any, usual: list[fx.Node]) -> list[fx.Node]:
        place = {node: k for k, node in enumerate(joint.nodes)}
        found.joint = joint
        found.usual = frozenset(place[node] for node in usual)
        found.free = frozenset(closure(joint, joint.needed, found.usual).again)
        return usual

    def split(graph: fx.GraphModule, inputs: Any, **options: Any) -> Any:
        return partition(graph, inputs, choose, **options)

    def backend(graph: fx.GraphModule, inputs: Any) -> Any:
        return compile_graph("aot_eager", graph, inputs, split, {})

    torch._dynamo.reset()
    torch.compile(function, backend=backend, fullgraph=True)(*args)
    return found


def mlp(depth: int, width: int = 8) -> nn.Module:
    """Layers that save what they read and what they make."""
    torch.manual_seed(0)
    layers = [m for _ in range(depth) for m in (nn.Linear(width, width), nn.GELU())]
    return nn.Sequential(*layers)

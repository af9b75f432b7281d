"""Joint graphs of small functions, as the compiler would make them: one seam.

A front of plans is compared with all the plans that there are, which only a graph and
its count can tell. `CompilerBudget` shows of a front the one plan that it takes.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from retape.engines.eager.compiled._backends import compile_graph, partition
from retape.engines.eager.compiled._count import PlanCounter
from retape.engines.eager.compiled._front import front
from retape.engines.eager.compiled._joint import Joint
from tests.engines.eager.compiled.account import account as account
from tests.engines.eager.compiled.account import closure


class Seen:
    """What the partitioner was asked: the graph, and what is usual."""

    joint: Any
    usual: frozenset[int]

    def front(self, at_no_cost: Any) -> list[Any]:
        """The plans, counted once more by another counter, which is to agree.

        What runs again if some nodes are saved is `at_no_cost`.
        """
        free = closure(self.joint, self.joint.needed, at_no_cost).again
        plans = list(front(PlanCounter(self.joint, at_no_cost), self.usual))
        for each in plans:
            again = account(self.joint, each.keep, frozenset(free))
            assert (again.peak, again.cost) == (each.peak, each.cost)
        return plans


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


def seen(function: Callable[..., Tensor], *args: Any) -> Seen:
    """Compile a function and run it; hand out its joint graph."""
    found = Seen()
    found.joint, usual = asked_of(function, *args)
    found.usual = frozenset(map(found.joint.nodes.index, usual))
    return found


def mlp(depth: int, width: int = 8) -> nn.Module:
    """Layers that save what they read and what they make."""
    torch.manual_seed(0)
    layers = [m for _ in range(depth) for m in (nn.Linear(width, width), nn.GELU())]
    return nn.Sequential(*layers)

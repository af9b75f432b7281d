"""Joint graphs of small functions, as the compiler would make them: one seam.

A front of plans is compared with all the plans that there are, which only a graph and
its count can tell. `CompilerBudget` shows of a front the one plan that it takes.
"""

from collections.abc import Callable
from typing import Any

import torch
from benchmarks.torch.account import account as account
from benchmarks.torch.account import closure
from benchmarks.torch.graphs import asked_of
from torch import Tensor, nn

from retape.engines.eager.compiled._count import PlanCounter
from retape.engines.eager.compiled._front import front


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

"""A program whose scans are run with other options than it was written with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from retape._errors import UnsupportedError
from retape.engines.jaxpr.jaxprs._target import platform
from retape.engines.jaxpr.layers.loops._cut_loop import run_scans
from retape.engines.jaxpr.layers.loops._options import LoopOptions
from retape.engines.jaxpr.layers.remat._flat_program import Graph, is_loop, is_nested
from retape.engines.jaxpr.layers.remat._policy import Strategy, saves_products


@dataclass(frozen=True, slots=True)
class Loops(Strategy):
    """The program's scans as `retape.jax.scan` with these options."""

    options: LoopOptions
    deep: bool = False
    """Whether loops in the bodies of loops are run so, too."""

    def run(self, graph: Graph, values: Sequence[Any]) -> list[Any]:
        if not any(eqn.primitive.name == "scan" for eqn in graph.jaxpr.eqns):
            raise UnsupportedError(
                "a loop was to be run in another way, and it was traced to a program "
                "with 0 scans at its top. This release of what made the loop builds it "
                "otherwise: use one that Retape supports."
            )
        return run_scans(graph.jaxpr, values, self.options, deep=self.deep)


def loop_ways(graph: Graph) -> list[Loops | None]:
    """How loops may be reversed, by rising extra work; `None` is as they are."""
    fourth = LoopOptions(levels=2, policy=saves_products)
    if platform() != "cpu":
        fourth = LoopOptions(levels=1, offload="host")
    options = [
        LoopOptions(levels=1, policy=saves_products),
        LoopOptions(levels=1),
        fourth,
        LoopOptions(levels=2),
    ]
    more = [LoopOptions(levels=k) for k in (3, 5)]
    deep = [LoopOptions(levels=k) for k in (1, 2)]
    nested = any(is_nested(eqn) for eqn in graph.jaxpr.eqns)
    last = [Loops(o, deep=True) for o in deep] if nested else list(map(Loops, more))
    return [None, *map(Loops, options), *last]


def has_loops(graph: Graph) -> bool:
    """Whether there is a scan of more than one step."""
    return any(map(is_loop, graph.jaxpr.eqns))

"""A program whose scans are run with other options than it was written with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jax.extend import core

from retape._errors import UnsupportedError
from retape.engines.jaxpr.jaxprs._evaluate import bind, evaluate
from retape.engines.jaxpr.jaxprs._jax_internals import scan_parts
from retape.engines.jaxpr.jaxprs._target import platform
from retape.engines.jaxpr.layers.loops._options import LoopOptions
from retape.engines.jaxpr.layers.loops._scan import scan
from retape.engines.jaxpr.layers.policies import selective
from retape.engines.jaxpr.layers.remat._flat_program import (
    Graph,
    graph_of,
    is_loop,
    is_nested,
)
from retape.engines.jaxpr.layers.remat._strategies import LoopWay, Strategy, offer


@dataclass(frozen=True, slots=True)
class Loops(Strategy):
    """The program's scans as `retape.jax.scan` with these options."""

    options: LoopOptions
    deep: bool = False
    """Whether loops in the bodies of loops are run so, too."""

    def run(self, graph: Graph, values: Sequence[Any]) -> list[Any]:
        scans = sum(eqn.primitive.name == "scan" for eqn in graph.jaxpr.eqns)
        if not (scans or self.deep):
            raise UnsupportedError(
                "a loop was to be run in another way, and it was traced to a program "
                "with 0 scans at its top. This release of what made the loop builds it "
                "otherwise: use one that Retape supports."
            )
        return evaluate(graph.jaxpr, values, self._apply)

    def _apply(self, eqn: Any, values: list[Any]) -> list[Any]:
        if not is_loop(eqn):
            return bind(eqn, values)
        params = eqn.params
        consts, carries = scan_parts(params)
        fixed = values[:consts]
        inside = core.jaxpr_as_fun(params["jaxpr"])
        if self.deep:
            graph, held = graph_of(params["jaxpr"])
            inside = lambda *given: self.run(graph, [*held, *given])  # noqa: E731

        def body(carry: list[Any], xs: list[Any]) -> tuple[list[Any], list[Any]]:
            outs = inside(*fixed, *carry, *xs)
            return outs[:carries], outs[carries:]

        carry, ys = scan(
            body,
            values[consts : consts + carries],
            values[consts + carries :],
            params["length"],
            params["reverse"],
            params["unroll"],
            # Releases of JAX differ in whether the equation tells.
            params.get("_split_transpose", False),
            **self.options.as_keywords(),
        )
        return [*carry, *ys]


def ways(graph: Graph) -> list[LoopWay]:
    """How loops may be reversed, by rising extra work; `None` is as they are."""
    fourth = LoopOptions(levels=2, policy=selective())
    if platform() != "cpu":
        fourth = LoopOptions(levels=1, offload="host")
    options = [
        LoopOptions(levels=1, policy=selective()),
        LoopOptions(levels=1),
        fourth,
        LoopOptions(levels=2),
    ]
    more = [LoopOptions(levels=k) for k in (3, 5)]
    deep = [LoopOptions(levels=k) for k in (1, 2)]
    nested = any(is_nested(eqn) for eqn in graph.jaxpr.eqns)
    last = [Loops(o, deep=True) for o in deep] if nested else list(map(Loops, more))
    return [None, *map(Loops, options), *last]


class _Forms:
    """What `layers.remat` needs to know of loops."""

    ways = staticmethod(ways)

    def inside(self, levels: int, policy: Strategy | None) -> Strategy:
        return Loops(LoopOptions(levels=levels, policy=policy), deep=policy is None)


offer(_Forms())

"""A program whose scans are run with other options than it was written with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jax.extend import core

from retape.engines.jaxpr.jaxprs._evaluate import bind, evaluate
from retape.engines.jaxpr.jaxprs._jax_internals import scan_parts
from retape.engines.jaxpr.layers.loops._options import LoopOptions
from retape.engines.jaxpr.layers.loops._scan import scan
from retape.engines.jaxpr.layers.remat._flat_program import Graph, is_loop
from retape.engines.jaxpr.layers.remat._strategies import Strategy


@dataclass(frozen=True, slots=True)
class Loops(Strategy):
    """The program's scans as `retape.jax.scan` with these options."""

    options: LoopOptions

    def run(self, graph: Graph, values: Sequence[Any]) -> list[Any]:
        return evaluate(graph.jaxpr, values, self._apply)

    def _apply(self, eqn: Any, values: list[Any]) -> list[Any]:
        if not is_loop(eqn):
            return bind(eqn, values)
        params = eqn.params
        consts, carries = scan_parts(params)
        fixed = values[:consts]

        def body(carry: list[Any], xs: list[Any]) -> tuple[list[Any], list[Any]]:
            outs = core.jaxpr_as_fun(params["jaxpr"])(*fixed, *carry, *xs)
            return outs[:carries], outs[carries:]

        carry, ys = scan(
            body,
            values[consts : consts + carries],
            values[consts + carries :],
            params["length"],
            params["reverse"],
            params["unroll"],
            **self.options.as_keywords(),
        )
        return [*carry, *ys]

"""`fitted_scan`: a scan whose levels, policy and offload are chosen by a budget.

Seven ways stand in a row, by rising extra work. What they take falls, by and large, so
the middle one is compiled first, then the middle of one half, and so on: three ways at
most. Which is taken depends on the budget alone, and a greater budget is never answered
by more work: on the way down both make the same turns, until the smaller one turns to
more work.

    as it is | products with weights | every step | 2 levels, products | 2 | 3 | 5
                                                    ^ first

On an accelerator carries in the host's memory stand in the place of the fourth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
from jax import lax

from retape._bytes import format_bytes, parse_bytes
from retape._errors import BudgetError, PlanError
from retape.engines.jaxpr.intake._hijax import as_classic
from retape.engines.jaxpr.jaxprs._avals import check_sizes_known, struct
from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.jaxprs._evaluate import evaluate
from retape.engines.jaxpr.jaxprs._jax_internals import axis_names
from retape.engines.jaxpr.layers.loops._options import LoopOptions
from retape.engines.jaxpr.layers.loops._remat_body import Body
from retape.engines.jaxpr.layers.loops._whole_loops import Loops
from retape.engines.jaxpr.layers.policies import selective
from retape.engines.jaxpr.layers.remat._compiled_footprint import footprint, gradients
from retape.engines.jaxpr.layers.remat._deferred_choice import run_late
from retape.engines.jaxpr.layers.remat._flat_program import Graph, graph_of
from retape.engines.jaxpr.layers.remat._within_budget import PrintedGradient


def checked_memory(memory: int | str, options: LoopOptions) -> int:
    """The bytes that were asked for, with nothing beside them.

    Raises:
        PlanError: If it is no amount, or an option says what it chooses.
    """
    given = [f"`{k}={v!r}`" for k, v in options.as_keywords().items() if v is not None]
    if given:
        raise PlanError(
            f"`memory={memory!r}` chooses levels, policy and offload, and "
            f"{' and '.join(given)} says one of them. Pass one or the other."
        )
    return parse_bytes(memory, "memory")


def fitted_scan(
    f: Body, init: Any, xs: Any, *, memory: int, length: int | None, **theirs: Any
) -> tuple[Any, Any]:
    """`jax.lax.scan`, reversed in the way of least work that keeps to a budget.

    Args:
        f: The body, `(carry, x) -> (carry, y)`.
        init: The first carry.
        xs: What is scanned over.
        memory: Bytes for the temporaries of the loop's gradient, on each device.
        length: As for `jax.lax.scan`.
        **theirs: Other options of `jax.lax.scan`.

    Raises:
        BudgetError: When a derivative is taken, if nothing fits.
    """
    leaves, tree = jax.tree.flatten((init, xs))

    def plainly(*leaves: Any) -> Any:
        init, xs = jax.tree.unflatten(tree, leaves)
        return lax.scan(f, init, xs, length, **theirs)

    closed, shape = jax.make_jaxpr(plainly, return_shape=True)(*leaves)
    graph, consts = graph_of(as_classic(closed))
    outs = run_late(graph, FittedLoop(memory), [*consts, *leaves])
    return jax.tree.unflatten(jax.tree.structure(shape), outs)


@dataclass(frozen=True, slots=True)
class FittedLoop:
    """What chooses, once it is known by what the gradient is taken."""

    memory: int

    def choose(
        self, graph: Graph, moving: tuple[bool, ...]
    ) -> Callable[[Sequence[Any]], list[Any]]:
        """The loop with the options that fit.

        Raises:
            BudgetError: If none do; with the least that something takes.
        """
        avals = [v.aval for v in graph.jaxpr.invars]
        check_sizes_known(avals, f"`memory={self.memory}`")
        search = _loop_search(PrintedGradient(graph, 0, moving))
        found = search.best(self.memory)
        if found is None:
            number, least = min(search.known.items(), key=lambda item: item[1])
            way = described(search.ways[number])
            raise BudgetError(
                f"`memory={self.memory}` ({format_bytes(self.memory)}) cannot be kept "
                f"by the gradient of this loop. The least of what was tried is {least} "
                f"bytes ({format_bytes(least)}), with {way}. Pass at least "
                "that: one step's own derivative is a floor that no division of the "
                "loop goes below.",
                least,
            )
        return partial(_run_way, graph, *found)


def ways() -> list[LoopOptions | None]:
    """How a loop may be reversed, by rising extra work; `None` is as it is."""
    fourth = LoopOptions(levels=2, policy=selective())
    if jax.default_backend() != "cpu":
        fourth = LoopOptions(levels=1, offload="host")
    return [
        None,
        LoopOptions(levels=1, policy=selective()),
        LoopOptions(levels=1),
        fourth,
        *(LoopOptions(levels=k) for k in (2, 3, 5)),
    ]


def described(way: LoopOptions | None) -> str:
    """A way in the words of `remat_scan`'s options."""
    if way is None:
        return "the loop as it is"
    policy = ", policy=policies.selective()" if way.policy else ""
    offload = f", offload={way.offload!r}" if way.offload else ""
    return f"`levels={way.levels}{policy}{offload}`"


def _run_way(graph: Graph, way: LoopOptions | None, values: Sequence[Any]) -> list[Any]:
    if way is None:
        return evaluate(graph.jaxpr, values, consts=())
    return Loops(way).run(graph, values)


class LoopSearch:
    """The ways of one loop, and what the compiler says of them."""

    def __init__(self, graph: Graph, moving: tuple[bool, ...]) -> None:
        self.graph, self.moving, self.ways = graph, moving, ways()
        self.known: dict[int, int] = {}

    def best(self, memory: int) -> tuple[LoopOptions | None] | None:
        """The way to go, in a tuple; `None` if none that was asked about fits."""
        low, high, found = 0, len(self.ways), None
        while low < high:
            middle = (low + high) // 2
            if self.bytes(middle) <= memory:
                found, high = middle, middle
            else:
                low = middle + 1
        return None if found is None else (self.ways[found],)

    def bytes(self, number: int) -> int:
        """Temporaries of the gradient under one way."""
        if number not in self.known:
            structs = [struct(v.aval) for v in self.graph.jaxpr.invars]
            run = partial(_run_way, self.graph, self.ways[number])
            programs, args = gradients(run, structs, self.moving)
            names = axis_names(self.graph.jaxpr)
            taken = (footprint(p, *args, names=names).temp for p in programs)
            self.known[number] = max(taken)
        return self.known[number]


@cached(32)
def _loop_search(printed: PrintedGradient) -> LoopSearch:
    return LoopSearch(printed.graph, printed.moving)

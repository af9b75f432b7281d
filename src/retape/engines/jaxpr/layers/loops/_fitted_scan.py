"""`fitted_scan`: a scan whose levels, policy and offload are chosen by a budget."""

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
from retape.engines.jaxpr.jaxprs._avals import check_sizes_known
from retape.engines.jaxpr.layers.loops._options import LoopOptions
from retape.engines.jaxpr.layers.loops._remat_body import Body
from retape.engines.jaxpr.layers.loops._whole_loops import described
from retape.engines.jaxpr.layers.remat._deferred_choice import run_late
from retape.engines.jaxpr.layers.remat._flat_program import Graph, graph_of
from retape.engines.jaxpr.layers.remat._loop_search import loop_search, run_way


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
        search = loop_search(graph, moving)
        found = search.best(self.memory)
        if found is None:
            least, way = search.least()
            raise BudgetError(
                f"`memory={self.memory}` ({format_bytes(self.memory)}) cannot be kept "
                f"by the gradient of this loop. The least of what was tried is {least} "
                f"bytes ({format_bytes(least)}), with {described(way)}. Pass at least "
                "that: one step's own derivative is a floor that no division of the "
                "loop goes below.",
                least,
            )
        return partial(run_way, graph, *found)

"""A loop as JAX traces it, run in another way.

JAX traces the body once for a function and its types, and so do we: what is cut is the
traced body, and a body that was cut before is not cut again. Side effects of the body
happen once, in a loop of their own beside: segments are run again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import jax
from jax.extend import core

from retape.engines.jaxpr.api._call_cache import is_traced_once
from retape.engines.jaxpr.intake._effects import let_happen, take_out
from retape.engines.jaxpr.intake._hijax import as_classic
from retape.engines.jaxpr.jaxprs._avals import as_weak, struct
from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.jaxprs._evaluate import bind, evaluate
from retape.engines.jaxpr.jaxprs._jax_internals import (
    classic_rules,
    current_source,
    scan_parts,
)
from retape.engines.jaxpr.jaxprs._structural_equality import deduplicate
from retape.engines.jaxpr.jaxprs._subprogram import hoist
from retape.engines.jaxpr.layers.loops._remat_body import Body


class Way(Protocol):
    """How a loop is run; equal ways run equal loops in the same way."""

    @property
    def asks_policy(self) -> bool:
        """Whether a policy is asked about the body, which may answer with a warning."""
        ...

    def run(self, body: Body, init: Any, xs: Any) -> tuple[Any, Any]:
        """The last carry, and the rows."""
        ...


def run_loop(plainly: Callable[[], Any], way: Way) -> Any:
    """The result of a function whose one loop is run in a way of ours.

    Args:
        plainly: Runs the loop by `jax.lax`.
        way: How it is run.

    Raises:
        UnsupportedError: If the body has a side effect whose result it uses.
    """
    # With `jit` off JAX runs loops in Python: there would be none to cut.
    with jax.disable_jit(False), classic_rules():
        closed, shape = jax.make_jaxpr(plainly, return_shape=True)()
    pure, acting = take_out(as_classic(closed))
    if acting is not None:
        let_happen(*hoist(acting))

    at = current_source()

    def here(eqn: Any, values: list[Any]) -> list[Any]:
        # A loop that was cut for another call comes from this one's line.
        return bind(eqn.replace(source_info=at), values)

    def apply(eqn: Any, values: list[Any]) -> list[Any]:
        if eqn.primitive.name != "scan":
            return bind(eqn, values)
        consts, carries = scan_parts(eqn.params)
        body = deduplicate(eqn.params["jaxpr"], names=True, once=is_traced_once())
        types = tuple(struct(jax.typeof(v)) for v in values)
        made = _cut_program.made_anew if way.asks_policy else _cut_program
        return evaluate(made(body, consts, carries, types, way), values, here)

    outs = evaluate(pure.jaxpr, [], apply, consts=pure.consts)
    return jax.tree.unflatten(
        jax.tree.structure(shape), as_weak(outs, closed.out_avals)
    )


@cached(64)
def _cut_program(
    body: core.ClosedJaxpr,
    consts: int,
    carries: int,
    types: tuple[jax.ShapeDtypeStruct, ...],
    way: Way,
) -> core.ClosedJaxpr:
    """The loop as a program of its constants, its first carry and what it is over."""

    def run(*values: Any) -> list[Any]:
        fixed = values[:consts]

        def step(carry: list[Any], xs: list[Any]) -> tuple[list[Any], list[Any]]:
            outs = core.jaxpr_as_fun(body)(*fixed, *carry, *xs)
            return outs[:carries], outs[carries:]

        start, over = values[consts : consts + carries], values[consts + carries :]
        carry, ys = way.run(step, list(start), list(over))
        return [*carry, *ys]

    return jax.make_jaxpr(run)(*types)

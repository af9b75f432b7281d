"""A program that is only run, lowered for a GPU: in chunks, as its sweep would be.

The value of a function that `retape.jax.checkpointed` marked, and so that of a solve by
`RetapeAdjoint`, is computed by the program as the user wrote it. Its loops of unknown
length make the host of a GPU wait at each turn, and each conditional in them makes it
wait, too; here they go in chunks (`sweep/_device_sweep`). A program whose loops all
have known lengths stays as it is but for its cheap conditionals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.extend import core

from retape._errors import RetapeError
from retape.engines.jaxpr._pipeline import compile_program
from retape.engines.jaxpr.analysis._activity import wide
from retape.engines.jaxpr.calls._platform_form import by_platform
from retape.engines.jaxpr.calls._rerun import Rerun
from retape.engines.jaxpr.jaxprs._avals import extents, is_inexact, struct
from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.jaxprs._provenance import ORIGINS, inner_plan
from retape.engines.jaxpr.jaxprs._rewrite import contains
from retape.engines.jaxpr.jaxprs._target import is_gpu
from retape.engines.jaxpr.nest._both_branches import without_waits
from retape.engines.jaxpr.sizing._fit_budget import is_manual
from retape.engines.jaxpr.sweep._device_sweep import chunked_run
from retape.engines.jaxpr.xla._single_kernel import NAME
from retape.plan._base import Plan


def forward_form(
    jaxpr: core.ClosedJaxpr, plan: Plan | None, platforms: Sequence[str]
) -> core.ClosedJaxpr:
    """A program that is called, as it is run on these platforms.

    Args:
        jaxpr: The program.
        plan: Its plan, which may ask for a form.
        platforms: Those that it is lowered for.
    """
    plan = inner_plan(plan)
    loops = None if plan is None else plan.loops
    asked = loops == "device" or (loops is None and any(map(is_gpu, platforms)))
    if not asked or isinstance(plan, Rerun) or ORIGINS.get(jaxpr) is not None:
        return jaxpr
    found = _in_chunks(jaxpr)
    return found if loops == "device" else by_platform(lambda: jaxpr, found, platforms)


@cached(64)
def _in_chunks(jaxpr: core.ClosedJaxpr) -> core.ClosedJaxpr:
    # A sweep that was batched or differentiated has the form that it was made in.
    if jaxpr.effects or contains(jaxpr, _is_made) or _keeps_loops(jaxpr):
        return jaxpr
    if not contains(jaxpr, lambda eqn: eqn.primitive.name == "while"):
        return without_waits(jaxpr)
    try:
        with wide(jaxpr):
            compiled = compile_program(jaxpr, list(map(is_inexact, jaxpr.in_avals)))
    except RetapeError:
        # No program by all of its inputs: it can still be run.
        return jaxpr
    if len(compiled.code) == 1:
        return without_waits(jaxpr)

    def run(*values: Any) -> list[Any]:
        return chunked_run(compiled, [*values, *compiled.constants])

    with wide(jaxpr):
        return jax.make_jaxpr(run)(*map(struct, jaxpr.in_avals))


def _is_made(eqn: core.JaxprEqn) -> bool:
    """Tell whether an equation is a sweep of this library's."""
    return eqn.params.get("name") == NAME


def _keeps_loops(jaxpr: core.ClosedJaxpr) -> bool:
    """Tell whether devices wait for one another in it, or sizes are symbols."""
    shapes = [getattr(v, "shape", ()) for v in jaxpr.in_avals]
    return is_manual(jaxpr) or any(extents(s) != tuple(s) for s in shapes)

"""Conditionals of the user's without a wait: both branches run, and one chosen.

A conditional makes the host of a GPU wait, also inside a loop of known trip count. So
for an accelerator one whose branches are cheap is not one any more:

    before:  y = cond p (f x) (g x)
    after:   a = f x;  b = g x;  y = select p a b

That is done with the code of a block, and of its way back, after derivatives were
taken: a branch that was not called for may make infinities, and nothing of it is kept.
Branches that may not end, talk to the host or have other side effects stay branches.

An adaptive solve of diffrax's has such a conditional in each stage of each step; 13
steps waited 320 times for them (diffrax 0.7.2, November 2026).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import lax
from jax.extend import core

from retape.engines.jaxpr.analysis._flops import flops
from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.jaxprs._jax_internals import jaxprs_in_params
from retape.engines.jaxpr.jaxprs._primitive_table import Kernel, traits
from retape.engines.jaxpr.jaxprs._rewrite import contains, rewrite
from retape.engines.jaxpr.jaxprs._scalar_ops import at_least, at_most, chosen
from retape.engines.jaxpr.nest._chunk_sizes import BUSY, KERNEL, WAIT, is_unsafe

_IN_VAIN = 8 * WAIT
"""What the branches that are not called for may cost: some forty kernels of tiny
arrays. A wait also leaves the device without work until the host has enqueued some
again, and a block that waits is waited for at each of its turns, wanted or not. The
search along a line of MJX's solver is such a branch, of 25 kernels (mujoco-mjx 3.17).
"""
_FUSED = KERNEL // 16
"""An elementwise operation: a dozen and more of them are one kernel."""


@cached(256)
def without_waits(jaxpr: core.ClosedJaxpr) -> core.ClosedJaxpr:
    """The program with each cheap conditional replaced by a choice.

    Examples:
        >>> import jax
        >>> absolute = lambda x: jax.lax.cond(x > 0, lambda v: v, lambda v: -v, x)
        >>> program = without_waits(jax.make_jaxpr(absolute)(1.0))
        >>> [str(e.primitive) for e in program.eqns][-1]
        'select_n'
    """
    if not contains(jaxpr, _is_conditional):
        return jaxpr
    # From within: a conditional is looked at with those inside it replaced.
    return rewrite(jaxpr, _may_run_all, _all_then_one)


def _is_conditional(eqn: core.JaxprEqn) -> bool:
    return eqn.primitive.name == "cond"


def _may_run_all(eqn: core.JaxprEqn) -> bool:
    """Tell whether all branches may be run at what a few waits cost."""
    if not _is_conditional(eqn) or eqn.effects:
        return False
    branches = [b.jaxpr for b in eqn.params["branches"]]
    if any(map(is_unsafe, branches)):
        return False
    prices = list(map(kernel_price, branches))
    return sum(prices) - min(prices) <= _IN_VAIN


def kernel_price(jaxpr: core.Jaxpr) -> int:
    """What code costs an accelerator, in operations; a kernel's start is `KERNEL`."""
    return sum(map(_price_of, jaxpr.eqns))


def _price_of(eqn: core.JaxprEqn) -> int:
    inner = [getattr(j, "jaxpr", j) for j in jaxprs_in_params(eqn.params)]
    if inner:
        times = eqn.params["length"] if eqn.primitive.name == "scan" else 1
        return times * sum(map(kernel_price, inner))
    fused = traits(eqn).kernel in (Kernel.ELEMENT, Kernel.SHAPE)
    return (_FUSED if fused else KERNEL) + flops(eqn) // BUSY


def _all_then_one(eqn: core.JaxprEqn, values: Sequence[Any]) -> list[Any]:
    index, *given = values
    branches = [without_waits(b) for b in eqn.params["branches"]]
    made = [core.jaxpr_as_fun(b)(*given) for b in branches]
    if len(made) == 2:
        return [chosen(index > 0, b, a) for a, b in zip(*made, strict=True)]
    index = at_most(at_least(index, 0), len(made) - 1)
    return [lax.select_n(index, *alike) for alike in zip(*made, strict=True)]

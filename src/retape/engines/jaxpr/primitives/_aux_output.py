"""Auxiliary outputs (`has_aux`): no cotangent in this sweep, derivatives outside of it.

A gradient needs no derivative of it: it has no cotangents. Whoever differentiates the
whole program, the auxiliary outputs with it, wants them as they are, and
`lax.stop_gradient` would stop that derivative, too. So the first is said by an
operation of our own, which the code of a sweep no longer has in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core
from jax.interpreters import ad, batching, mlir

from retape.engines.jaxpr.jaxprs._avals import is_inexact

aside_p = core.Primitive("retape_aux_output")


class _Aside:
    """The operation, as `_ir.op_results` runs it: not at all."""

    def run(self, value: Any) -> list[Any]:
        return [value]

    ruled = run


_ASIDE = _Aside()


def aux_output(tree: Any) -> Any:
    """The same values, by which a sweep does not differentiate."""
    return jax.tree.map(_aside, tree)


def without_aside(jaxpr: core.ClosedJaxpr) -> core.ClosedJaxpr:
    """The program that hands the auxiliary outputs back themselves.

    It is run where there is no sweep. An operation that is left in it would tell the
    sweep of another program, which this one is part of, that no derivative goes there.
    """
    inner = jaxpr.jaxpr
    passed = {e.outvars[0]: e.invars[0] for e in inner.eqns if e.primitive is aside_p}
    eqns = [e for e in inner.eqns if e.primitive is not aside_p]
    # Nothing but the program's end reads what went through the operation.
    ends = inner.outvars
    outs = [v if isinstance(v, core.Literal) else passed.get(v, v) for v in ends]
    return core.ClosedJaxpr(inner.replace(eqns=eqns, outvars=outs), jaxpr.consts)


def _aside(value: Any) -> Any:
    value = jnp.asarray(value)
    if not is_inexact(value):
        return value
    return aside_p.bind(value, own=_ASIDE)


@aside_p.def_impl
def _aux_impl(value: Any, *, own: Any) -> Any:
    del own
    return value


aside_p.def_abstract_eval(_aux_impl)


def _aux_jvp(values: Sequence[Any], tangents: Sequence[Any], *, own: Any) -> Any:
    return aside_p.bind(*values, own=own), tangents[0]


def _aux_batch(values: Sequence[Any], dims: Sequence[Any], *, own: Any) -> Any:
    return aside_p.bind(*values, own=own), dims[0]


ad.primitive_jvps[aside_p] = _aux_jvp
batching.primitive_batchers[aside_p] = _aux_batch
mlir.register_lowering(aside_p, lambda context, value, *, own: [value])

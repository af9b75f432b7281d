"""One stage: reverse a program by running it again, when its cotangents have come.

XLA on the CPU merges a recomputation with the first run, and drops the barriers that
should keep them apart. It merges nothing into the branch of a conditional, and cannot
begin one before its predicate is known. So the recomputation stands in a branch, and
the predicate looks at the cotangents. It is always true, but not to be proved so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.extend import core
from jax.interpreters import batching, mlir

from retape.engines.jaxpr.analysis._activity import propagate, wide
from retape.engines.jaxpr.jaxprs._avals import blank, struct, varying
from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.jaxprs._evaluate import dce_inputs, vjp_by, which
from retape.plan._base import Plan
from retape.plan._prediction import Bytes

arrived_p = core.Primitive("retape_is_ready")
"""True, as soon as its operand is known. Never batched, so that a conditional on it
stays one under `vmap`."""


_NO_MESH = jax.sharding.AbstractMesh((), ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun(Plan):
    """The plan of a marked function: no snapshots, and the whole of it in one stage."""

    def _pick(self, n: int | None, both: Bytes | None) -> tuple[int, int]:
        return max(1, n or 1), 0


@cached(256)
def rerun_program(
    jaxpr: core.ClosedJaxpr, active: tuple[bool, ...]
) -> core.ClosedJaxpr:
    """The program `(x..., dy...) -> (y..., dx...)`; see `_rules.sweep_program`."""
    n = len(jaxpr.in_avals)
    pull, needed = _pull_back(jaxpr, active)

    def run(*values: Any) -> list[Any]:
        outs = core.jaxpr_as_fun(jaxpr)(*values[:n])
        read = [v for v, there in zip(values, needed, strict=True) if there]
        return [*outs, *_when_arrived(pull, read, values[n:])]

    avals = [*jaxpr.in_avals, *_seed_avals(jaxpr, active)]
    with wide(jaxpr):
        return jax.make_jaxpr(run)(*map(struct, avals))


def _seed_avals(jaxpr: core.ClosedJaxpr, active: tuple[bool, ...]) -> list[Any]:
    moved = propagate(jaxpr, active)
    return [v for v, m in zip(jaxpr.out_avals, moved, strict=True) if m]


def flows_back(jaxpr: core.ClosedJaxpr, active: tuple[bool, ...]) -> list[bool]:
    """For each active input, whether its cotangent may be anything but zero.

    It is zero where a rule says that the input plays no part: zeros are made then. One
    that does not follow from the cotangents of the outputs may be anything, since a
    custom rule may read the values alone.
    """
    pull = _pull_back(jaxpr, active)[0].jaxpr
    zeros = {v for eqn in pull.eqns if _makes_zeros(eqn) for v in eqn.outvars}
    # A literal cannot be looked for in a set.
    return [
        not (_is_zero(v) if isinstance(v, core.Literal) else v in zeros)
        for v in pull.outvars
    ]


def _makes_zeros(eqn: core.JaxprEqn) -> bool:
    return eqn.primitive is lax.broadcast_in_dim_p and _is_zero(eqn.invars[0])


def _is_zero(value: Any) -> bool:
    return isinstance(value, core.Literal) and not np.any(value.val)


@cached(256)
def _pull_back(
    jaxpr: core.ClosedJaxpr, active: tuple[bool, ...]
) -> tuple[core.ClosedJaxpr, list[bool]]:
    """From what it reads of `(x..., dy...)` to `(dx...)`, and which it reads."""
    n = len(jaxpr.in_avals)
    chosen = which(active)
    moved = which(propagate(jaxpr, active))

    def back(*values: Any) -> tuple[Any, ...]:
        _, pull = vjp_by(core.jaxpr_as_fun(jaxpr), values[:n], chosen, moved)
        return pull(list(values[n:]))

    avals = [*jaxpr.in_avals, *_seed_avals(jaxpr, active)]
    with wide(jaxpr):
        return dce_inputs(jax.make_jaxpr(back)(*map(struct, avals)))


def _when_arrived(
    pull: core.ClosedJaxpr, read: Sequence[Any], seeds: Sequence[Any]
) -> Sequence[Any]:
    """The cotangents, computed in a branch that is entered when the seeds are known."""

    def back(read: Sequence[Any]) -> list[Any]:
        return core.jaxpr_as_fun(pull)(*read)

    def nothing(read: Sequence[Any]) -> list[Any]:
        # A custom rule may give a cotangent of another type than that of its operand.
        return list(map(blank, pull.out_avals))

    # Other platforms keep the barrier, and there `arrived` is a constant.
    both = _behind_barriers([*read, *seeds])
    read, seeds = both[: len(read)], both[len(read) :]
    return lax.cond(arrived(seeds), back, nothing, read)


def _behind_barriers(values: Sequence[Any]) -> list[Any]:
    """The values behind barriers; each keeps its type.

    One barrier for all would make those that are the same on all devices of a mesh vary
    like the others.
    """
    found = list(values)
    kinds: dict[Any, list[int]] = {}
    for i, v in enumerate(values):
        kinds.setdefault(varying(jax.typeof(v)), []).append(i)
    for group in kinds.values():
        after = lax.optimization_barrier([values[i] for i in group])
        for i, value in zip(group, after, strict=True):
            found[i] = value
    return found


def arrived(values: Sequence[Any]) -> Any:
    """True when the first value is known."""
    looked_at = next((v for v in values if v.size), None)
    if looked_at is None:
        return True
    return arrived_p.bind(lax.stop_gradient(looked_at))


def _rerun_impl(value: Any) -> Any:
    element = lax.slice(value, (0,) * value.ndim, (1,) * value.ndim)
    number = lax.reshape(jnp.real(element), ()).astype(jnp.float32)
    # Of all numbers and NaN, too; a compiler that keeps no ranges cannot tell.
    return jnp.logical_not(number < 0) | (number < 1)


def _constant(value: Any) -> Any:
    del value
    return jnp.array(True)


def _rerun_batch(values: Sequence[Any], dims: Sequence[Any]) -> tuple[Any, None]:
    del dims
    # No axis: one truth for all lanes.
    return arrived_p.bind(*values), None


def _lower_on_cpu(context: Any, value: Any) -> Any:
    """Look at an element of the array as the compiler sees it.

    On a mesh with explicit axes the shardings are part of the types, and a slice of one
    element has none; the compiler takes it where it is and tells the others.
    """
    (aval,) = context.avals_in
    plain = context.replace(avals_in=[ShapedArray(aval.shape, aval.dtype)])
    with jax.sharding.use_abstract_mesh(_NO_MESH):
        return mlir.lower_fun(_rerun_impl, multiple_results=False)(plain, value)


# What is evaluated at once is not merged with anything.
arrived_p.def_impl(_constant)
arrived_p.def_abstract_eval(lambda value: ShapedArray((), jnp.dtype(bool)))
batching.primitive_batchers[arrived_p] = _rerun_batch
mlir.register_lowering(arrived_p, mlir.lower_fun(_constant, multiple_results=False))
mlir.register_lowering(arrived_p, _lower_on_cpu, platform="cpu")

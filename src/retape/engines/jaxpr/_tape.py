"""Pass 4: each block's derivative, split in two: what a tape needs, and the rest.

`jax.vjp` of a block gives its outputs and a pullback, and the pullback is a pytree
whose leaves are the residuals. Tracing both halves separately gives two jaxprs:

    taped:     ins -> (outs, residuals)           run forwards, residuals on the tape
    pullback:  (residuals, d outs) -> d ins       run backwards

Many residuals need no place on the tape: those that are operands, kept values or rows
of them are still there when the stage is swept back, and constants are constants.
What remains is grouped by shape and type into *pools*, one array each with as many
rows as a stage can fill; blocks of any kind share the pools, so that a stage through
many different blocks needs no more than the hungriest of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.extend import core
from jax.interpreters import partial_eval as pe

from ..._errors import UnsupportedError
from ._code import Code
from ._ir import Aval, Var
from ._layout import Layout
from ._private import source_line

Kind = tuple[tuple[int, ...], Any]
"""A pool's shape and type."""

COUNTS: Kind = ((), np.dtype(np.int32))
"""The pool in which loop counters are taped."""


@dataclass(frozen=True, slots=True)
class Saved:
    """Where a residual is found when the stage is swept back."""

    pool: Kind | None = None
    """On the tape, in the pool of this shape and type, or"""
    source: int | None = None
    """the `source`-th input of the block, which is still there, or"""
    constant: Any = None
    """a constant, or"""
    same: int | None = None
    """an earlier residual: JAX may hand out one value several times."""


@dataclass(frozen=True, slots=True, eq=False)
class TapedCode:
    """A block's two halves, and what goes between them."""

    code: Code
    taped: core.ClosedJaxpr
    """`(*ins, *rows) -> (*outs, *rows, next, *taped residuals)`."""
    saved: tuple[Saved, ...]
    pullback: core.ClosedJaxpr | None
    """`(*residuals, *cotangents of active_outs) -> cotangents of active_ins`."""
    active_ins: tuple[int, ...]
    """Positions among `(*ins, *rows)` to which a cotangent goes back."""
    active_outs: tuple[int, ...]
    """Positions among `(*outs, *rows)` from which a cotangent comes."""

    def counts(self) -> list[Var]:
        """Loop counters whose value the sweep back needs, to find a stream's rows."""
        if self.pullback is None:
            return []
        found = [a.at.count for a in (*self.code.reads, *self.code.writes)]
        return list(dict.fromkeys(found))

    def pushes(self) -> Counter[Kind]:
        """How many rows of each pool one run of the block fills."""
        taped = Counter(s.pool for s in self.saved if s.pool is not None)
        taped[COUNTS] += len(self.counts())
        return +taped


def tape(code: Code, layout: Layout) -> TapedCode:
    """Split a block's derivative."""
    variables = [*code.ins, *(r.out for r in code.reads)]
    n_out = len(code.outs) + len(code.writes)
    active_ins = tuple(i for i, v in enumerate(variables) if v.active)
    out_flags = [v.active for v in code.outs] + [w.stream.active for w in code.writes]
    active_outs = tuple(i for i, a in enumerate(out_flags) if a)
    if not active_ins or not active_outs:
        return TapedCode(code, code.jaxpr, (), None, (), ())
    split = _Split(code, active_ins, active_outs)
    taped = jax.make_jaxpr(split.forwards)(*_structs(code.jaxpr.in_avals))
    residuals = taped.jaxpr.outvars[n_out + 1 :]
    saved = _classify(taped, residuals, _lasting(code, layout))
    keep = [s.pool is not None for s in saved]
    cotangents = [code.jaxpr.out_avals[i].to_tangent_aval() for i in active_outs]
    pullback = jax.make_jaxpr(split.backwards)(
        *_structs([r.aval for r in residuals]), *_structs(cotangents)
    )
    taped = _outputs_only(taped, [True] * (n_out + 1) + keep)
    return TapedCode(code, taped, saved, pullback, active_ins, active_outs)


class _Split:
    """The two halves as Python functions; the first leaves the shape for the second."""

    def __init__(
        self, code: Code, active_ins: Sequence[int], active_outs: Sequence[int]
    ) -> None:
        self.code = code
        self.active_ins = active_ins
        self.active_outs = active_outs
        self.shape: Any = None

    def forwards(self, *values: Any) -> list[Any]:
        run = core.jaxpr_as_fun(self.code.jaxpr)

        def partial(*active: Any) -> tuple[list[Any], list[Any]]:
            full = list(values)
            for i, v in zip(self.active_ins, active, strict=True):
                full[i] = v
            outs = run(*full)
            return [outs[i] for i in self.active_outs], outs

        chosen = [values[i] for i in self.active_ins]
        try:
            _, pull, outs = jax.vjp(partial, *chosen, has_aux=True)
        except Exception as error:
            raise _no_rule(self.code, error) from error
        residuals, self.shape = jax.tree_util.tree_flatten(pull)
        return [*outs, *residuals]

    def backwards(self, *values: Any) -> tuple[Any, ...]:
        n = self.shape.num_leaves
        pull = jax.tree_util.tree_unflatten(self.shape, values[:n])
        return pull(list(values[n:]))


def _no_rule(code: Code, error: Exception) -> Exception:
    """The error of a block that JAX cannot differentiate, with the user's lines."""
    lines = dict.fromkeys(
        f"`{e.primitive.name}` at {source_line(e)}" for e in code.jaxpr.eqns
    )
    shown = "; ".join(list(lines)[:8])
    return UnsupportedError(
        f"JAX has no reverse-mode rule for a part of the program: {error}\n"
        f"It is among these operations: {shown}. Give that operation a derivative "
        "with `jax.custom_vjp` (or `jax.custom_jvp`), or cut the derivative with "
        "`jax.lax.stop_gradient`."
    )


def _lasting(code: Code, layout: Layout) -> set[int]:
    """Inputs of a block that are unchanged when the stage is swept back."""
    sources: list[Var] = [*code.ins, *(r.stream for r in code.reads)]
    return {i for i, v in enumerate(sources) if layout.where[v].kind != "slot"}


def _classify(
    taped: core.ClosedJaxpr, residuals: Sequence[Any], lasting: set[int]
) -> tuple[Saved, ...]:
    """Where each residual comes back from."""
    position = {v: i for i, v in enumerate(taped.jaxpr.invars)}
    constants = dict(zip(taped.jaxpr.constvars, taped.consts, strict=True))
    first: dict[Any, int] = {}

    def place(number: int, var: Any) -> Saved:
        if isinstance(var, core.Literal):
            return Saved(constant=np.asarray(var.val, var.aval.dtype))
        if var in constants:
            return Saved(constant=constants[var])
        if position.get(var) in lasting:
            return Saved(source=position[var])
        if first.setdefault(var, number) != number:
            return Saved(same=first[var])
        return Saved(pool=(tuple(var.aval.shape), var.aval.dtype))

    return tuple(place(i, v) for i, v in enumerate(residuals))


def _outputs_only(jaxpr: core.ClosedJaxpr, keep: Sequence[bool]) -> core.ClosedJaxpr:
    """The jaxpr with some of its outputs, and only the code that they need."""
    cleaned, _ = pe.dce_jaxpr(jaxpr.jaxpr, list(keep), instantiate=True)
    return core.ClosedJaxpr(cleaned, jaxpr.consts)


def _structs(avals: Sequence[Aval]) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals]

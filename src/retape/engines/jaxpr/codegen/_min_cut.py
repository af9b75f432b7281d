"""Choice of the residuals to tape: a minimum cut.

JAX's partial evaluation names the values that a pullback reads (its residuals). Many
of them are views of one another, or one multiplication away from something that is
saved anyway. Taping the least bytes from which all residuals follow by cheap
operations alone is a minimum cut between what cannot be recomputed and what is
needed:

    source -> v      if v is a register on entry, or the result of dear work
    v.in -> v.out    with v's bytes as capacity: cutting it means taping v
    v.out -> u.in    if u follows from v by a cheap operation
    r.out -> sink    for every residual r

Operands and kept values hang on no source: they are still there when the stage is
swept back, and so is all that follows cheaply from them. The cut is the edge of what
a maximum flow can still reach (Ford and Fulkerson 1956). On the paper's example
(Fig. 8) this takes a step's tape from 24 kB to 8 kB, the bytes of the state itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.extend import core

from retape.engines.jaxpr.jaxprs._avals import nbytes
from retape.engines.jaxpr.jaxprs._evaluate import dce_inputs
from retape.engines.jaxpr.jaxprs._jax_internals import DropVar
from retape.engines.jaxpr.jaxprs._primitive_table import Again, traits
from retape.engines.jaxpr.jaxprs._rewrite import programs_of
from retape.engines.jaxpr.jaxprs._subprogram import excerpt, slice_between, variables

_ROW = 16
"""Bytes that taping one more value costs besides its own: the row's bookkeeping."""


@dataclass(frozen=True, slots=True, eq=False)
class Residuals:
    """The values to tape, and how the pullback's residuals follow from them."""

    taped: core.ClosedJaxpr
    """`ins -> (outs, values to tape)`."""
    sources: tuple[int, ...]
    """Inputs (operands, kept values, rows of them) that the recomputation reads."""
    restore: core.ClosedJaxpr
    """`(values taped, sources) -> residuals`."""


def choose_residuals(
    taped: core.ClosedJaxpr, n_outs: int, lasting: set[int]
) -> Residuals:
    """Split `ins -> (outs, residuals)` so that the fewest bytes are taped.

    Args:
        taped: The block with its residuals as the outputs from `n_outs` on.
        n_outs: How many outputs come before the residuals.
        lasting: Inputs that are still there when the stage is swept back.
    """
    jaxpr = merge_equal(taped)
    inner = jaxpr.jaxpr
    residuals = inner.outvars[n_outs:]
    free = {v for i, v in enumerate(inner.invars) if i in lasting} | set(
        inner.constvars
    )
    wanted = variables(residuals)
    saved = sorted(_minimum_cut(inner, wanted, free), key=_order(inner))
    sources = tuple(sorted(lasting))
    made = slice_between(jaxpr, inner.invars, [*inner.outvars[:n_outs], *saved])
    given = [*saved, *(inner.invars[i] for i in sources)]
    restore = slice_between(jaxpr, given, residuals)
    needed = dce_inputs(restore)[1][len(saved) :]
    sources = tuple(s for s, u in zip(sources, needed, strict=True) if u)
    given = [*saved, *(inner.invars[i] for i in sources)]
    return Residuals(made, sources, slice_between(jaxpr, given, residuals))


def merge_equal(closed: core.ClosedJaxpr) -> core.ClosedJaxpr:
    """Common-subexpression elimination: forward and derivative rules repeat work."""
    inner = closed.jaxpr
    same: dict[Any, Any] = {}
    done: dict[Any, list[Any]] = {}
    eqns: list[core.JaxprEqn] = []

    def first(atom: Any) -> Any:
        return atom if isinstance(atom, core.Literal) else same.get(atom, atom)

    for eqn in inner.eqns:
        ins = [first(a) for a in eqn.invars]
        key = _key(eqn, ins)
        made = done.get(key)
        # What was made before and dropped is made again where it is wanted.
        if made is None or any(isinstance(v, DropVar) for v in made):
            eqns.append(eqn.replace(invars=ins))
            if key is not None:
                done[key] = eqn.outvars
        else:
            same.update(zip(eqn.outvars, made, strict=True))
    consts = dict(zip(inner.constvars, closed.consts, strict=True))
    outs = [first(a) for a in inner.outvars]
    return excerpt(inner, inner.invars, outs, eqns, consts)


def _key(eqn: core.JaxprEqn, ins: Sequence[Any]) -> Any:
    """Key for common subexpressions; `None` if equality cannot be told."""
    if eqn.effects or programs_of(eqn):
        return None
    names = [_text(a) if isinstance(a, core.Literal) else a for a in ins]
    key = (eqn.primitive, tuple(names), tuple(sorted(eqn.params.items(), key=_name)))
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _text(literal: core.Literal) -> Any:
    """Key of a literal. Zeros of either sign differ."""
    return literal.aval, str(literal.val) if np.ndim(literal.val) == 0 else id(literal)


def _name(item: tuple[str, Any]) -> str:
    return item[0]


def _order(jaxpr: core.Jaxpr) -> Any:
    """The order in which a jaxpr makes its values."""
    made = [*jaxpr.constvars, *jaxpr.invars]
    made += [v for e in jaxpr.eqns for v in e.outvars]
    place = {v: i for i, v in enumerate(made)}
    return lambda v: place[v]


def _minimum_cut(jaxpr: core.Jaxpr, wanted: Sequence[Any], free: set[Any]) -> set[Any]:
    """The values to tape: a minimum cut by bytes.

    Each value is two nodes with an edge of its bytes between them, so that cutting the
    edge is taping the value; see "The minimum cut of a tape" in `docs/devdocs/proofs`.
    Nodes 0 and 1 are the source and the sink.
    """
    maker = {v: e for e in jaxpr.eqns for v in e.outvars}
    reached = _cheap_past(wanted, maker, free)
    if not reached:
        return set()
    number = {v: 2 + 2 * i for i, v in enumerate(reached)}
    edges: dict[tuple[int, int], int] = {}
    # SciPy's capacities have 32 bits; beyond half a gigabyte bytes are rounded up.
    unit = max(1, sum(_tape_cost(v) for v in reached) >> 29)
    for var, at in number.items():
        edges[at, at + 1] = -(-_tape_cost(var) // unit)
        eqn = maker.get(var)
        if eqn is None or not _is_cheap(eqn):
            edges[0, at] = _INFINITE
            continue
        for read in variables(eqn.invars):
            if read in number:
                edges[number[read] + 1, at] = _INFINITE
    for var in wanted:
        if var in number:
            edges[number[var] + 1, 1] = _INFINITE
    side = _source_side(edges, 2 + 2 * len(number))
    return {v for v, at in number.items() if at in side and at + 1 not in side}


_INFINITE = 2**31 - 1


def _is_cheap(eqn: core.JaxprEqn) -> bool:
    return traits(eqn).again >= Again.FUSED


def _tape_cost(var: Any) -> int:
    return nbytes(var.aval) + _ROW


def _cheap_past(
    wanted: Sequence[Any], maker: dict[Any, Any], free: set[Any]
) -> list[Any]:
    """All values that a cheap recomputation of the wanted ones might start from."""
    found: dict[Any, None] = {}
    stack = [v for v in wanted if v not in free]
    while stack:
        var = stack.pop()
        if var in found:
            continue
        found[var] = None
        eqn = maker.get(var)
        if eqn is not None and _is_cheap(eqn):
            stack += [a for a in variables(eqn.invars) if a not in free]
    return list(found)


def _source_side(edges: dict[tuple[int, int], int], n: int) -> set[int]:
    """The nodes that the source still reaches when the flow is greatest."""
    # Here, since importing them takes a fifth of a second.
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    rows, cols = zip(*edges, strict=True)
    capacity = csr_array(
        (np.array(list(edges.values()), np.int32), (rows, cols)), shape=(n, n)
    )
    flow = maximum_flow(capacity, 0, 1).flow
    left = csr_array(capacity - flow)
    left.data = (left.data > 0).astype(np.int32)
    left.eliminate_zeros()
    return set(breadth_first_order(left, 0, return_predecessors=False).tolist())

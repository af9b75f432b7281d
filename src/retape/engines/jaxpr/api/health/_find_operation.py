"""Find the operation of a step whose derivative is at fault.

The step is known, its inputs and the cotangents of its results are there. So it is
evaluated once more, operation by operation, and swept back in the same way, until a
cotangent comes out that is not finite (or has grown the most). Calls, branches and
scans inside the step are gone into.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from retape.engines.jaxpr.jaxprs._evaluate import begun, bind, vjp_by
from retape.engines.jaxpr.jaxprs._jax_internals import (
    scan_parts,
    source_line,
    source_place,
)
from retape.engines.jaxpr.jaxprs._primitive_table import callee
from retape.engines.jaxpr.jaxprs._subprogram import closed
from retape.engines.jaxpr.sweep._watch import largest


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One operation of the user's program, with the values that it had.

    Attributes:
        equation: The operation.
        inputs: Its operands.
        finite: Whether its results were finite.
        grown: The largest cotangent of its operands over that of its results.
    """

    equation: core.JaxprEqn
    inputs: tuple[Any, ...]
    finite: bool
    grown: float

    @property
    def name(self) -> str:
        """JAX's name of the operation, such as `sqrt`."""
        return self.equation.primitive.name

    @property
    def line(self) -> str:
        """`file:line (function)` of the user's code."""
        return source_line(self.equation)

    @property
    def text(self) -> str:
        """That line of source, if it can be read."""
        place = source_place(self.equation)
        return "" if place is None else linecache.getline(*place[:2]).strip()

    @property
    def expression(self) -> str:
        """What stands there in that line: the operation, and what it reads."""
        place = source_place(self.equation)
        if place is None or place[1] != place[3]:
            return ""
        # Columns are counted in bytes.
        source = linecache.getline(*place[:2]).encode()
        return source[place[2] : place[4]].decode()

    @property
    def operands(self) -> str:
        """Types and ranges of the operands, for a message."""
        return ", ".join(map(_described, self.inputs))


def forward_fault(jaxpr: core.ClosedJaxpr, values: Sequence[Any]) -> Operation | None:
    """The first operation whose results are not finite, though its operands are."""
    for eqn, ins, outs in _evaluated(jaxpr, values):
        if all_finite(ins) and not all_finite(outs):
            for body, given in _inside(eqn, ins):
                found = forward_fault(body, given)
                if found is not None:
                    return found
            return Operation(eqn, tuple(ins), False, 1.0)
    return None


def reverse_fault(
    jaxpr: core.ClosedJaxpr, values: Sequence[Any], cotangents: Sequence[Any]
) -> Operation | None:
    """The operation at fault on the way back.

    Args:
        jaxpr: The code of a step.
        values: Of its inputs.
        cotangents: Of its outputs; `None` for one that has none.

    Returns:
        The first, from the end, that makes a cotangent which is not finite; if there is
        none, the one that makes it grow the most; `None` if nothing has a cotangent.
    """
    found: dict[Any, Any] = {}
    _accumulate(found, jaxpr.jaxpr.outvars, cotangents)
    steepest: Operation | None = None
    for eqn, ins, outs in reversed(list(_evaluated(jaxpr, values))):
        given = [found.pop(v, None) for v in eqn.outvars]
        if all(c is None for c in given):
            continue
        pulled = _pull(eqn, ins, given)
        before, after = _norm(given), _norm(pulled)
        grown = after / before if before else 0.0
        if steepest is None or grown > steepest.grown or not np.isfinite(after):
            inner = _fault_inside(eqn, ins, given)
            steepest = inner or Operation(eqn, tuple(ins), all_finite(outs), grown)
        if not np.isfinite(after):
            return steepest
        _accumulate(found, eqn.invars, pulled)
    return steepest


def _evaluated(
    jaxpr: core.ClosedJaxpr, values: Sequence[Any]
) -> Iterator[tuple[core.JaxprEqn, list[Any], list[Any]]]:
    """Every equation, with the values of its inputs and outputs."""
    env = begun(jaxpr, values)
    for eqn in jaxpr.eqns:
        env.run(eqn)
        yield eqn, env.read_all(eqn.invars), env.read_all(eqn.outvars)


def _inside(
    eqn: core.JaxprEqn, ins: Sequence[Any]
) -> Iterator[tuple[core.ClosedJaxpr, list[Any]]]:
    """The programs that an equation runs, with their inputs, in order."""
    p = eqn.params
    match eqn.primitive.name:
        case "cond":
            index = int(np.clip(ins[0], 0, len(p["branches"]) - 1))
            yield p["branches"][index], list(ins[1:])
        case "scan":
            yield from _iterations(eqn, ins)
        case _:
            body = callee(eqn)
            if body is not None:
                yield body, list(ins)


def _iterations(
    eqn: core.JaxprEqn, ins: Sequence[Any]
) -> Iterator[tuple[core.ClosedJaxpr, list[Any]]]:
    p = eqn.params
    nc, nk = scan_parts(p)
    body, consts, carry = closed(p["jaxpr"]), ins[:nc], list(ins[nc : nc + nk])
    order = range(p["length"])
    for i in reversed(order) if p["reverse"] else order:
        given = [*consts, *carry, *(x[i] for x in ins[nc + nk :])]
        yield body, given
        carry = core.jaxpr_as_fun(body)(*given)[:nk]


def _fault_inside(
    eqn: core.JaxprEqn, ins: Sequence[Any], cotangents: Sequence[Any]
) -> Operation | None:
    """The operation at fault in what an equation runs."""
    # A custom rule is differentiated in the stead of its function.
    if eqn.primitive.name.startswith("custom_"):
        return None
    if eqn.primitive.name != "scan":
        runs = list(_inside(eqn, ins))
        return reverse_fault(*runs[0], cotangents) if runs else None
    return _fault_in_scan(eqn, ins, cotangents)


def _fault_in_scan(
    eqn: core.JaxprEqn, ins: Sequence[Any], cotangents: Sequence[Any]
) -> Operation | None:
    p = eqn.params
    nc, nk = scan_parts(p)
    carry, rows = list(cotangents[:nk]), cotangents[nk:]
    runs = list(_iterations(eqn, ins))
    steepest: Operation | None = None
    for k in reversed(range(len(runs))):
        at = p["length"] - 1 - k if p["reverse"] else k
        body, given = runs[k]
        wanted = [*carry, *(None if r is None else r[at] for r in rows)]
        found = reverse_fault(body, given, wanted)
        if found is not None and (steepest is None or found.grown > steepest.grown):
            steepest = found
        pulled = _pulled_through(body, given, wanted)
        if not np.isfinite(_norm(pulled)):
            return found
        carry = pulled[nc : nc + nk]
    return steepest


def _pull(eqn: core.JaxprEqn, ins: list[Any], cotangents: Sequence[Any]) -> list[Any]:
    """Cotangents of an equation's inputs; `None` where there is none."""

    def run(*values: Any) -> list[Any]:
        return bind(eqn, list(values))

    return _vjp(run, ins, cotangents)


def _pulled_through(
    body: core.ClosedJaxpr, ins: list[Any], cotangents: Sequence[Any]
) -> list[Any]:
    return _vjp(core.jaxpr_as_fun(body), ins, cotangents)


def _vjp(run: Any, ins: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    moving = [i for i, v in enumerate(ins) if _is_inexact(v)]
    wanted = [i for i, c in enumerate(cotangents) if c is not None]

    _, back = vjp_by(run, ins, moving, wanted)
    found: list[Any] = [None] * len(ins)
    pulled = back([cotangents[i] for i in wanted])
    for i, cotangent in zip(moving, pulled, strict=True):
        found[i] = cotangent
    return found


def _accumulate(
    found: dict[Any, Any], atoms: Sequence[Any], cotangents: Sequence[Any]
) -> None:
    for atom, cotangent in zip(atoms, cotangents, strict=True):
        if cotangent is None or isinstance(atom, core.Literal):
            continue
        found[atom] = found[atom] + cotangent if atom in found else cotangent


def _norm(arrays: Sequence[Any]) -> float:
    return float(largest([a for a in arrays if a is not None and _is_inexact(a)]))


def all_finite(values: Sequence[Any]) -> bool:
    """Whether no floating value among these is infinite or NaN."""
    return all(bool(jnp.all(jnp.isfinite(v))) for v in values if _is_inexact(v))


def _is_inexact(value: Any) -> bool:
    return jax.dtypes.issubdtype(jax.typeof(value).dtype, np.inexact)


def _described(value: Any) -> str:
    aval = jax.typeof(value)
    kind = f"{aval.dtype}[{','.join(map(str, aval.shape))}]"
    if not _is_inexact(value) or not aval.size or jnp.iscomplexobj(value):
        return kind
    if not aval.shape:
        return f"{kind} = {float(value):.6g}"
    low, high = float(jnp.min(value)), float(jnp.max(value))
    zeros = int(jnp.sum(value == 0))
    said = f"{kind} from {low:.6g} to {high:.6g}"
    return f"{said}, {zeros} of them 0" if zeros else said

"""Find the operation of a step whose derivative is at fault.

The step is known, its inputs and the cotangents of its results are there. So it is
evaluated once more, operation by operation, and swept back in the same way, until a
cotangent comes out that is not finite (or has grown the most). Calls, branches and
scans inside the step are gone into: all operations stand in one row, as they were run.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from retape.engines.jaxpr.jaxprs._avals import is_inexact
from retape.engines.jaxpr.jaxprs._evaluate import Environment, bind, evaluate, vjp_by
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
    """

    equation: core.JaxprEqn
    inputs: tuple[Any, ...]

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
    for done in _Run(jaxpr, values, into_rules=True).row:
        ins, outs = _arrays(done.ins), _arrays(done.outs)
        if all_finite(ins) and not all_finite(outs):
            return Operation(done.eqn, tuple(ins))
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
    run = _Run(jaxpr, values)
    found: dict[_Value, Any] = {}
    _accumulate(found, run.outs, cotangents)
    steepest, most = None, 0.0
    for done in reversed(run.row):
        given = [found.pop(v, None) for v in done.outs]
        if all(c is None for c in given):
            continue
        ins = _arrays(done.ins)
        pulled = _vjp(done.run, ins, given)
        before, after = _norm(given), _norm(pulled)
        grown = after / before if before else 0.0
        if steepest is None or grown > most or not np.isfinite(after):
            steepest, most = Operation(done.eqn, tuple(ins)), grown
        if not np.isfinite(after):
            return steepest
        _accumulate(found, done.ins, pulled)
    return steepest


@dataclass(frozen=True, slots=True, eq=False)
class _Value:
    """An array of the run, other than any equal one."""

    array: Any


@dataclass(frozen=True, slots=True, eq=False)
class _Done:
    """An operation that was run."""

    eqn: core.JaxprEqn
    run: Callable[..., list[Any]]
    ins: list[_Value]
    outs: list[_Value]


class _Run:
    """A program, run operation by operation.

    Args:
        jaxpr: The program.
        values: Its inputs.
        into_rules: Whether functions with a rule of their own are gone into; in reverse
            mode the rule is differentiated in their stead.
    """

    def __init__(
        self,
        jaxpr: core.ClosedJaxpr,
        values: Sequence[Any],
        *,
        into_rules: bool = False,
    ) -> None:
        self.row: list[_Done] = []
        self.calls: list[Any] = []
        self.into_rules = into_rules
        self.outs = self.program(jaxpr, list(map(_Value, values)))

    def program(self, jaxpr: core.ClosedJaxpr, ins: list[_Value]) -> list[_Value]:
        env = Environment(literal=lambda literal: _Value(literal.val))
        return evaluate(
            jaxpr, ins, self.operation, consts=map(_Value, jaxpr.consts), env=env
        )

    def operation(self, eqn: core.JaxprEqn, ins: list[_Value]) -> list[_Value]:
        """Run an operation, or what is in it."""
        if self.calls and source_place(eqn) is None:
            # JAX traces its own functions once: what is in them knows no user's line.
            eqn = eqn.replace(source_info=self.calls[-1])
        name, params = eqn.primitive.name, eqn.params
        if name == "cond":
            index = np.clip(ins[0].array, 0, len(params["branches"]) - 1)
            return self.program(params["branches"][int(index)], ins[1:])
        if name == "scan" and params["length"]:
            return self.scan(eqn, ins)
        body = callee(eqn)
        if body is None or (name.startswith("custom_") and not self.into_rules):
            return self.note(eqn, lambda *values: bind(eqn, list(values)), ins)
        self.calls.append(eqn.source_info)
        outs = self.program(body, ins)
        self.calls.pop()
        return outs

    def scan(self, eqn: core.JaxprEqn, ins: list[_Value]) -> list[_Value]:
        params = eqn.params
        nc, nk = scan_parts(params)
        consts, carry, xs = ins[:nc], ins[nc : nc + nk], ins[nc + nk :]
        rows: dict[int, list[_Value]] = {}
        order = range(params["length"])
        for i in reversed(order) if params["reverse"] else order:
            x = self.note(eqn, partial(_slices_at, i), xs)
            outs = self.program(closed(params["jaxpr"]), [*consts, *carry, *x])
            carry, rows[i] = outs[:nk], outs[nk:]
        columns = zip(*(rows[i] for i in order), strict=True)
        ys = [self.note(eqn, lambda *v: [jnp.stack(v)], [*each]) for each in columns]
        return [*carry, *(y for (y,) in ys)]

    def note(
        self, eqn: core.JaxprEqn, run: Callable[..., list[Any]], ins: list[_Value]
    ) -> list[_Value]:
        outs = list(map(_Value, run(*_arrays(ins))))
        self.row.append(_Done(eqn, run, ins, outs))
        return outs


def _slices_at(i: int, *arrays: Any) -> list[Any]:
    return [array[i] for array in arrays]


def _arrays(values: Sequence[_Value]) -> list[Any]:
    return [v.array for v in values]


def _vjp(run: Any, ins: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """Cotangents of an operation's operands; `None` where there is none."""
    moving = [i for i, v in enumerate(ins) if has_fraction(v)]
    wanted = [i for i, c in enumerate(cotangents) if c is not None]

    _, back = vjp_by(run, ins, moving, wanted)
    found: list[Any] = [None] * len(ins)
    pulled = back([cotangents[i] for i in wanted])
    for i, cotangent in zip(moving, pulled, strict=True):
        found[i] = cotangent
    return found


def _accumulate(
    found: dict[_Value, Any], values: Sequence[_Value], cotangents: Sequence[Any]
) -> None:
    for value, cotangent in zip(values, cotangents, strict=True):
        if cotangent is not None:
            found[value] = found[value] + cotangent if value in found else cotangent


def _norm(arrays: Sequence[Any]) -> float:
    return float(largest([a for a in arrays if a is not None and has_fraction(a)]))


def all_finite(values: Sequence[Any]) -> bool:
    """Whether no floating value among these is infinite or NaN."""
    return all(bool(jnp.all(jnp.isfinite(v))) for v in values if has_fraction(v))


def has_fraction(value: Any) -> bool:
    """Whether a value is of a floating type."""
    return is_inexact(jax.typeof(value))


def _described(value: Any) -> str:
    aval = jax.typeof(value)
    kind = f"{aval.dtype}[{','.join(map(str, aval.shape))}]"
    if not has_fraction(value) or not aval.size or jnp.iscomplexobj(value):
        return kind
    if not aval.shape:
        return f"{kind} = {float(value):.6g}"
    low, high = float(jnp.min(value)), float(jnp.max(value))
    zeros = int(jnp.sum(value == 0))
    said = f"{kind} from {low:.6g} to {high:.6g}"
    return f"{said}, {zeros} of them 0" if zeros else said

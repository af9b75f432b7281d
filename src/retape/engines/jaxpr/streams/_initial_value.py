"""The initial content of a buffer: one number, but for some rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from retape.engines.jaxpr.ir._ir import Atom, Lit
from retape.engines.jaxpr.jaxprs._evaluate import bind
from retape.engines.jaxpr.streams._induction import Growth
from retape.engines.jaxpr.streams._row_updates import row_set


@dataclass(frozen=True, slots=True)
class Start:
    """An array of one number, with rows set that are known in advance."""

    blank: Atom
    fill: Any
    rows: list[tuple[int, Atom]]


def start_of(atom: Atom, growth: Growth, constants: Mapping[Any, Any]) -> Start | None:
    """The content of an array, if it is known; `constants` has the values of some."""
    rows: list[tuple[int, Atom]] = []
    op = growth.maker(atom)
    while op is not None:
        found = row_set(op, growth)
        if found is None:
            break
        cases = growth.cases(found.index)
        if len(cases) != 1 or cases[0].base is not None:
            return None
        row = cases[0].shift
        if not 0 <= row < atom.aval.shape[0] or row in [r for r, _ in rows]:
            return None
        rows.append((row, found.update))
        atom, op = found.old, growth.maker(found.old)
    fill = None
    if op is not None and op.eqn.primitive.name == "broadcast_in_dim":
        fill = _value(op.ins[0], growth)
    elif op is None and atom in constants:
        fill = _everywhere(constants[atom])
    return None if fill is None else Start(atom, fill, rows)


def _everywhere(array: Any) -> Any:
    """The one number that an array is full of, else `None`."""
    if isinstance(array, Tracer) or jax.dtypes.issubdtype(
        array.dtype, jax.dtypes.extended
    ):
        return None
    numbers = np.asarray(array).reshape(-1)
    same = bool(numbers.size) and numbers.tobytes() == numbers[:1].tobytes() * len(
        numbers
    )
    return numbers[0] if same else None


def _value(atom: Atom, growth: Growth) -> Any:
    """A number that follows from what stands in the program, else `None`."""
    if isinstance(atom, Lit):
        traced = isinstance(atom.value, Tracer)
        return None if traced else np.asarray(atom.value, atom.aval.dtype)
    op = growth.maker(atom)
    if op is None or atom.aval.size != 1 or op.eqn.effects:
        return None
    ins = [_value(a, growth) for a in op.ins]
    if not ins or any(v is None for v in ins):
        return None
    with jax.ensure_compile_time_eval():
        outs = bind(op.eqn, ins)
    found = outs[op.outs.index(atom)]
    return np.asarray(found)


def is_zero(value: Any) -> bool:
    """Tell whether a number is the zero of blank arrays, which has no sign."""
    number = np.asarray(value)
    signed = number.dtype.kind not in "biu" and bool(np.signbit(np.real(number)))
    return not number and not signed

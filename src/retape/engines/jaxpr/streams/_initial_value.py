"""The initial content of a buffer: one number, but for some rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from retape.engines.jaxpr.ir._ir import Atom
from retape.engines.jaxpr.streams._definitions import Definitions
from retape.engines.jaxpr.streams._row_updates import RowSet, row_set


@dataclass(frozen=True, slots=True)
class Start:
    """An array of one number, with rows set before any loop."""

    blank: Atom
    fill: Any
    rows: list[RowSet]


def start_of(
    atom: Atom, made: Definitions, constants: Mapping[Any, Any]
) -> Start | None:
    """The content of an array, if it is known; `constants` has the values of some."""
    rows: list[RowSet] = []
    op = made.maker(atom)
    while op is not None:
        found = row_set(op, made)
        if found is None:
            break
        rows = [found, *rows]
        atom, op = found.old, made.maker(found.old)
    fill = None
    if op is not None and op.eqn.primitive.name == "broadcast_in_dim":
        fill = made.number(op.ins[0])
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


def is_zero(value: Any) -> bool:
    """Tell whether a number is the zero of blank arrays, which has no sign."""
    number = np.asarray(value)
    signed = number.dtype.kind not in "biu" and bool(np.signbit(np.real(number)))
    return not number and not signed

"""Values by where they live: operands beside the state, everything else in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.ir._ir import Atom, Lit, Var
from retape.engines.jaxpr.nest._resumable_nest import State


def value_of(
    compiled: Compiled, var: Var, operands: Sequence[Any], state: State
) -> Any:
    """The value of a variable: an operand, or what its place in the state holds."""
    place = compiled.layout.where[var]
    return operands[place.index] if place.kind == "operand" else state[place]


def output_of(
    compiled: Compiled, atom: Atom, operands: Sequence[Any], state: State
) -> Any:
    """The value of one of the program's outputs, in the state at the end of a run."""
    if isinstance(atom, Lit):
        return jnp.asarray(atom.value, atom.aval.dtype)
    return value_of(compiled, atom, operands, state)

"""Values by where they live, and a block's code evaluated on them.

Operands stand beside the state, everything else in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax.extend import core

from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.ir._ir import Atom, Lit, Var
from retape.engines.jaxpr.nest._both_branches import without_waits
from retape.engines.jaxpr.nest._resumable_nest import State
from retape.engines.jaxpr.xla._scalar_guards import evaluate_guarded


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


def evaluate_block(
    jaxpr: core.ClosedJaxpr,
    values: Sequence[Any],
    truth: Any,
    *,
    keeps_branches: bool = False,
) -> list[Any]:
    """Evaluate a block's code, or its derivative.

    Args:
        jaxpr: The code.
        values: Its inputs.
        truth: A traced boolean that is true, for branches; `None` for an accelerator.
        keeps_branches: Whether its conditionals are there to hold less at once.
    """
    if truth is None and not keeps_branches:
        jaxpr = without_waits(jaxpr)
    return evaluate_guarded(jaxpr, values, truth)

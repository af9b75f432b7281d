"""The checker of lowering: blocks that stand for a jaxpr."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.extend import core

from retape.engines.jaxpr.analysis._activity import propagate
from retape.engines.jaxpr.ir._ir import Lit, Program


def check_lowered(
    jaxpr: core.ClosedJaxpr,
    active: Sequence[bool],
    program: Program,
    constants: Sequence[Any],
) -> None:
    """Check that blocks take and return what their jaxpr does, as active as there."""
    n = len(jaxpr.in_avals)
    inputs, held = program.operands[:n], program.operands[n:]
    assert [v.aval for v in inputs] == list(jaxpr.in_avals), "other inputs"
    assert [v.active for v in inputs] == list(active), "other active inputs"
    assert len(held) == len(constants), "a constant without a value"
    for var, value in zip(held, constants, strict=True):
        assert not var.active, "a constant carries no derivative"
        assert var.aval.shape == np.shape(value), "a constant of another shape"
    moved = propagate(jaxpr, active)
    for out, aval, want in zip(program.outs, jaxpr.out_avals, moved, strict=True):
        assert (out.aval.shape, out.aval.dtype) == (aval.shape, aval.dtype), (
            "other outputs"
        )
        got = not isinstance(out, Lit) and out.active
        assert got or not want, "an output's derivative is lost"

"""A block's code in the form of its sweep: with branches of ours, or without any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend import core

from retape.engines.jaxpr.nest._both_branches import without_waits
from retape.engines.jaxpr.xla._scalar_guards import evaluate_guarded


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

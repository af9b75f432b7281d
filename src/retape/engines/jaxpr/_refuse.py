"""What cannot be run twice or reversed is refused by name, with the user's line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend import core

from ..._errors import UnsupportedError
from ._activity import called, opens_inside, outputs
from ._private import source_line

# Constructs whose bodies run on several devices at once: a program counter would
# have to be agreed on between them.
_SPREAD = frozenset({"shard_map", "xla_pmap"})


def refuse_effects(jaxpr: core.ClosedJaxpr) -> None:
    """Refuse a program with side effects: recomputation would repeat them.

    Raises:
        UnsupportedError: Names the effects, and the first equation that has one.
    """
    if not jaxpr.effects:
        return
    names = ", ".join(sorted({str(e) for e in jaxpr.effects}))
    eqn = first_with_effects(jaxpr)
    raise UnsupportedError(
        f"the program has side effects: `{names}`, from `{eqn.primitive.name}` at "
        f"{source_line(eqn)}. Its steps are run more than once to save memory, so the "
        "effect would happen more than once. Remove it (for printing, print from the "
        "value that the function returns), or use `jax.grad` for this function."
    )


def first_with_effects(jaxpr: Any) -> core.JaxprEqn:
    """The innermost first equation that has an effect."""
    for eqn in jaxpr.eqns if hasattr(jaxpr, "eqns") else jaxpr.jaxpr.eqns:
        if eqn.effects:
            inner = [j for j in core.jaxprs_in_params(eqn.params) if j.effects]
            return first_with_effects(inner[0]) if inner else eqn
    raise AssertionError("a jaxpr with effects has an equation with one")


def refuse_hidden_loop(eqn: core.JaxprEqn, active: Sequence[bool], grain: int) -> None:
    """Refuse a loop that must be reversed where its steps cannot be reached."""
    if eqn.primitive.name not in _SPREAD or not any(outputs(eqn, active)):
        return
    for inner in core.jaxprs_in_params(eqn.params):
        if called(eqn) is None and opens_inside(
            core.ClosedJaxpr(inner, ()), [True] * len(inner.invars), grain
        ):
            raise UnsupportedError(
                f"`{eqn.primitive.name}` at {source_line(eqn)} has a loop inside that "
                "must be reversed, and Retape cannot interrupt a loop that runs on "
                "several devices at once. Put the loop outside, with "
                f"`{eqn.primitive.name}` in its body, or take the gradient inside."
            )

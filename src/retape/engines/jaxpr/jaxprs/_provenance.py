"""The two primitives, and where a sweep comes from: it is transformed as a program.

`calls/_rules` says what they are and gives their rules; whatever these need binds them.

A batch of sweeps is better taken as the sweep of a batch (`calls/_batching`), for which
one must know what was swept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self
from weakref import WeakKeyDictionary

from jax.extend import core

from retape.plan._base import Plan

call_p = core.Primitive("retape_call")
call_p.multiple_results = True
linear_p = core.Primitive("retape_linear")
linear_p.multiple_results = True

Flags = tuple[bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Apart(Plan):
    """The plan of a call that stays one operation, whatever is swept around it."""

    inner: Plan | None = None

    @classmethod
    def of(cls, plan: Plan | None) -> Self:
        """A plan, for such a call; it has no number of bytes."""
        return cls(inner=plan, offload=None if plan is None else plan.offload)


def inner_plan(plan: Plan | None) -> Plan | None:
    """The user's own plan."""
    return plan.inner if isinstance(plan, Apart) else plan


class Origin(NamedTuple):
    """Where a sweep comes from."""

    primal: core.ClosedJaxpr
    active: Flags
    plan: Plan | None
    avals: tuple[Any, ...]
    """Of the inputs that it had: constants, those of the primal, seeds."""
    ins: Flags
    """Which of them it still has."""
    outs: Flags
    """Which outputs."""
    provisional: bool = False
    """Whether its sizes are chosen again when it is known where its inputs are."""


# No origin may refer to its own sweep: nothing would ever be forgotten.
ORIGINS: WeakKeyDictionary[core.ClosedJaxpr, Origin] = WeakKeyDictionary()


def narrowed(
    old: core.ClosedJaxpr,
    new: core.ClosedJaxpr,
    ins: Sequence[bool],
    outs: Sequence[bool],
) -> None:
    """Note that `new` is `old` with these of its inputs and outputs only."""
    origin = ORIGINS.get(old)
    if origin is not None:
        ORIGINS[new] = origin._replace(
            ins=_fewer(origin.ins, ins), outs=_fewer(origin.outs, outs)
        )


def _fewer(flags: Flags, kept: Sequence[bool]) -> Flags:
    given = iter(kept)
    return tuple(f and next(given) for f in flags)

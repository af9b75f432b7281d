"""The options that the layer tools share, checked in one place."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from retape._arguments import settle
from retape._errors import PlanError
from retape.engines.jaxpr.layers.remat._policy import Policy
from retape.plan._base import Plan
from retape.plan._options import Memory, check_offload
from retape.plan._support import JAX, check_plan, on_host


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """How a loop is reversed; at most one of the first three is given."""

    plan: Plan | None = None
    levels: int | None = None
    segment_length: int | None = None
    policy: Policy | None = None
    offload: Memory | None = None

    def __post_init__(self) -> None:
        chosen = [n for n in _WAYS if getattr(self, n) is not None]
        if len(chosen) > 1:
            both = " and ".join(f"`{n}={getattr(self, n)!r}`" for n in chosen)
            raise PlanError(
                f"{both} say the same thing twice: how the loop is cut. Pass one."
            )
        if self.plan is not None:
            object.__setattr__(self, "plan", check_plan(self.plan, JAX))
        counts = [
            n for n in ("levels", "segment_length") if getattr(self, n) is not None
        ]
        settle(self, **dict.fromkeys(counts, 1))
        check_offload(self.offload)
        self._check_plan_goes_alone()

    def at_most(self) -> int:
        """Nested loops; carries in the host's memory need no second level."""
        return self.levels or (1 if self.offload else 2)

    def as_keywords(self) -> dict[str, Any]:
        """Keyword arguments, for another function with these options."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def whole_plan(self) -> Plan | None:
        """The plan, with its snapshots where they were asked for."""
        return on_host(self.plan) if self.offload else self.plan

    def _check_plan_goes_alone(self) -> None:
        if self.plan is None:
            return
        self.whole_plan()  # says what does not go together
        if self.policy is not None:
            raise PlanError(
                "`plan` and `policy` do not go together: under a plan whole steps are "
                "kept or re-run. Pass `levels` or `segment_length` with `policy`."
            )


_WAYS = ("plan", "levels", "segment_length")

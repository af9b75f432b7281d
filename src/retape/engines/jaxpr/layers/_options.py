"""The options that the layer tools share, checked in one place."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from ...._errors import PlanError
from ...._offload_plans import on_host
from ...._plan import Plan
from ...._plan_options import Memory, check_offload

Policy = Callable[..., Any]
"""What `jax.checkpoint` takes as a policy: an operation to whether it is saved."""


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
        if self.plan is not None and not isinstance(self.plan, Plan):
            raise PlanError(
                f"`plan={self.plan!r}` is not a plan. Pass one that "
                "`retape.fixed_space`, `fixed_time`, `logarithmic`, `segments` or "
                "`within` makes."
            )
        for name in ("levels", "segment_length"):
            object.__setattr__(self, name, _count(name, getattr(self, name)))
        check_policy(self.policy)
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


def _count(name: str, value: Any) -> int | None:
    """A whole number of any type, NumPy's too, as Python's."""
    if value is None:
        return None
    try:
        count = operator.index(value)
    except TypeError:
        count = None
    if count is None or isinstance(value, bool):
        raise PlanError(
            f"`{name}={value!r}` is not a whole number. Pass an integer, at least 1."
        )
    if count < 1:
        what = "nested loops" if name == "levels" else "steps in a segment"
        raise PlanError(
            f"`{name}={value}` cannot be: it is the number of {what}. Pass at least 1."
        )
    return count


def check_policy(policy: Any) -> None:
    """Refuse what cannot be asked about an operation.

    An operation's parameters are passed by name, and differ from one operation to
    another: a policy takes any. What makes policies does not.

    Raises:
        PlanError: If `policy` is neither a policy nor `None`.
    """
    if policy is None or (callable(policy) and _takes_any_name(policy)):
        return
    if isinstance(policy, Plan):
        advice = "This is a plan: pass it to `retape.jax.scan` as `plan`."
    elif callable(policy):
        advice = (
            "If it makes policies, call it, as in `policies.selective()`; if it is "
            "one, add `**params` to its parameters."
        )
    else:
        advice = (
            "Pass one of `retape.jax.policies`, such as `policies.selective()`, or "
            "of `jax.checkpoint_policies`."
        )
    raise PlanError(
        f"`policy={policy!r}` is not a policy, which is asked about each operation as "
        f"`policy(primitive, *types, **params)`. {advice}"
    )


def _takes_any_name(policy: Callable[..., Any]) -> bool:
    try:
        taken = inspect.signature(policy).parameters.values()
    except (TypeError, ValueError):  # one that is not written in Python
        return True
    return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in taken)

"""Policies, as arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from retape._errors import PlanError
from retape.engines.jaxpr.layers.remat._policy import Policy
from retape.engines.jaxpr.layers.strategies._within_budget import Within
from retape.plan._base import Plan
from retape.plan._constructors import within


def as_policy(policy: Any) -> Policy | None:
    """The policy that was passed; a budget such as `retape.within("1 MB")` is one.

    An operation's parameters are passed by name, and differ from one operation to
    another: a policy takes any. What makes policies does not.

    Raises:
        PlanError: If `policy` is neither a policy, nor a budget, nor `None`.
    """
    if policy is None or (callable(policy) and _takes_any_name(policy)):
        return policy
    if isinstance(policy, Plan) and policy.is_tree and policy.budget is not None:
        return _of_budget(policy, policy.budget)
    if isinstance(policy, Plan):
        advice = (
            "This plan counts steps: pass it to `retape.jax.scan` as `plan`; a budget "
            "such as `retape.within(...)` is a policy, too."
        )
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


def _of_budget(plan: Plan, budget: int) -> Policy:
    """The policy that keeps to the budget of a plan, which says nothing else."""
    if plan != within(budget):
        raise PlanError(
            f"`policy={plan!r}` says how a run's steps are divided, and a policy "
            f"divides operations. Pass `retape.within({budget})`."
        )
    return Within(budget)


def _takes_any_name(policy: Callable[..., Any]) -> bool:
    try:
        taken = inspect.signature(policy).parameters.values()
    except (TypeError, ValueError):  # one that is not written in Python
        return True
    return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in taken)

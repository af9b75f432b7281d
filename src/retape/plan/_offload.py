"""Snapshots in the host's memory: which plans can have them there.

Where snapshots are is an option of a plan, and a compiled gradient of `retape.jax` is
who obeys it. All others refuse it (`_obeyers`), instead of forgetting the option.
"""

from dataclasses import replace

from retape._errors import PlanError
from retape.plan._base import Plan
from retape.plan._logarithmic import logarithmic


def on_host(plan: Plan | None) -> Plan:
    """The same plan with its snapshots in the host's memory.

    Args:
        plan: By default `retape.logarithmic()`.

    Raises:
        PlanError: If it counts bytes of which those snapshots would be none, or is one
            that a compiled gradient does not obey.

    Examples:
        >>> import retape
        >>> on_host(retape.fixed_space(snapshots=20)).offload
        'host'
    """
    if plan is None:
        return logarithmic(offload="host")
    if plan.is_tree and plan.budget is None:
        return replace(plan, offload="host")
    raise PlanError(f"`offload='host'` does not go with `plan={plan!r}`: {_why(plan)}.")


def _why(plan: Plan) -> str:
    if plan.is_tree:
        return (
            "a budget is shared by all that a gradient holds, and what is on the host "
            "is none of it. Pass a number of snapshots, such as "
            "`retape.fixed_space(snapshots=20, offload='host')`"
        )
    return (
        "it is obeyed action by action, by `retape.adjoint` and `retape.driver.run`, "
        "with a store for its snapshots. Pass another, such as "
        "`retape.fixed_space(snapshots=20, offload='host')`"
    )

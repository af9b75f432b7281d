"""Snapshots in the host's memory: which plans can have them there, and who keeps them.

Where snapshots are is an option of a plan, and a compiled gradient of `retape.jax` is
who obeys it. Whoever keeps snapshots in a store, or in the host's memory anyway, says
so instead of forgetting the option.
"""

from dataclasses import replace

from ._errors import PlanError
from ._plan import Plan, TreePlan
from ._plans import Within, logarithmic


def on_host(plan: Plan | None) -> Plan:
    """The same plan with its snapshots in the host's memory.

    Args:
        plan: By default `retape.logarithmic()`.

    Raises:
        PlanError: If it counts bytes of which those snapshots would be none, or is one
            that a compiled gradient does not obey.

    Example:
        >>> import retape
        >>> on_host(retape.fixed_space(snapshots=20)).offload
        'host'
    """
    if plan is None:
        return logarithmic(offload="host")
    if isinstance(plan, TreePlan) and not isinstance(plan, Within):
        return replace(plan, offload="host")
    raise PlanError(f"`offload='host'` does not go with `plan={plan!r}`: {_why(plan)}.")


def refuse_offload(plan: object, by: str, instead: str) -> None:
    """Refuse a plan with `offload` where nothing would come of it.

    Raises:
        PlanError: If it has it.
    """
    if getattr(plan, "offload", None) is None:
        return
    raise PlanError(
        f"`plan={plan!r}` asks for snapshots in the host's memory, which gradients of "
        f"`retape.jax` keep and {by} does not. Leave `offload` out of the plan; "
        f"{instead}."
    )


def _why(plan: Plan) -> str:
    if isinstance(plan, Within):
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

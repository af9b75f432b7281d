"""Who obeys plans, what each can do, and what an engine may ask of a plan.

A plan says what it needs; whoever obeys it says here what he can. From the two follow
the refusals and the table of the page "Plans": no engine lists kinds of plans. Here is
also what is said where no plan was passed, and the same plan with its snapshots in the
host's memory, which a compiled gradient of `retape.jax` has and all others refuse.
"""

from dataclasses import dataclass, replace
from typing import Any, get_args

from retape._bytes import parse_bytes
from retape._errors import PlanError
from retape.plan._base import Plan
from retape.schedule._split import Split

ALL_SPLITS: frozenset[Split] = frozenset(get_args(Split))


@dataclass(frozen=True, slots=True)
class Obeyer:
    """One who obeys plans.

    Attributes:
        name: Who, in messages.
        short: Who, at the head of a table's column.
        by_actions: It obeys any schedule, action by action. Otherwise it makes its own
            from (alpha, d, t).
        holds_tapes: It can hold tapes in slots.
        knows_length: It may know the number of steps before the run.
        offloads: It can have snapshots in the host's memory, apart from the device's.
        splits: The ways to cut intervals that it has.
        instead: What to do where `offload` is refused.
    """

    name: str
    short: str
    by_actions: bool = True
    holds_tapes: bool = False
    knows_length: bool = True
    offloads: bool = False
    splits: frozenset[Split] = ALL_SPLITS
    instead: str = "a store says where snapshots go"

    def refusal(self, plan: Plan) -> str | None:
        """Why this plan is not obeyed; `None` if it is.

        Examples:
            >>> import retape
            >>> JAX.refusal(retape.segments()) is None
            True
            >>> RECOMPUTE.refusal(retape.segments())
            'it needs the number of steps, and this run tells it only at its end'
        """
        if plan.offload is not None and not self.offloads:
            return (
                "it asks for snapshots in the host's memory, which gradients of "
                f"`retape.jax` keep and {self.name} does not"
            )
        if not plan.is_tree and not self.by_actions:
            return (
                "it is obeyed action by action, by `retape.adjoint` and "
                f"`retape.driver.run`, and {self.name} makes a schedule of its own"
            )
        if plan.keeps_tapes and not self.holds_tapes:
            return f"its slots may hold tapes, and {self.name} keeps states only"
        if plan.needs_length and not self.knows_length:
            return "it needs the number of steps, and this run tells it only at its end"
        if plan.split not in self.splits:
            return (
                f"`split={plan.split!r}` is not offered: snapshots are placed as the "
                "run goes on"
            )
        return None

    def advice(self, plan: Plan) -> str:
        """Advice: plans to pass instead of one that is refused."""
        if plan.offload is not None and not self.offloads:
            return f"Leave `offload` out of the plan; {self.instead}."
        if plan.split not in self.splits and not plan.needs_length:
            return "Leave `split` out."
        if plan.keeps_tapes and not self.holds_tapes and self.by_actions:
            return "Pass the plan with `store={'state'}`."
        others = (
            "Pass another plan, such as `retape.fixed_space(snapshots=20)`, "
            "`retape.logarithmic()` or `retape.within(...)`"
        )
        hosted = not plan.is_tree and not self.by_actions and not plan.keeps_tapes
        if hosted and self.offloads:
            # The same engine with the host at the helm.
            return (
                f"{others}; or, with this plan, `store=retape.DiskStore(...)` or "
                "another store: the host then steers the run."
            )
        return f"{others}."


ADJOINT = Obeyer(
    "`retape.adjoint`", "`retape.adjoint`, `retape.driver.run`", holds_tapes=True
)
JAX = Obeyer("`retape.jax`", "`retape.jax`", by_actions=False, offloads=True)
JAX_HOSTED = Obeyer(
    "`retape.jax` with `store=`", "`retape.jax` with `store=`", offloads=True
)
"""The host steers the run, action by action."""
RECOMPUTE = Obeyer(
    "`retape.torch.recompute`",
    "`retape.torch.recompute`",
    by_actions=False,
    knows_length=False,
    splits=frozenset({"binomial"}),
)
CHAIN = Obeyer(
    "`retape.torch.checkpoint_sequential`",
    "`retape.torch.checkpoint_sequential`",
    holds_tapes=True,
)
VLAD = Obeyer(
    "VLAD",
    "`retape.vlad`",
    instead="all its values are in the host's memory",
)
OBEYERS = (ADJOINT, JAX, JAX_HOSTED, RECOMPUTE, CHAIN, VLAD)
"""All of them, in the order of the page."""


def check_plan(plan: Any, by: Obeyer) -> Plan:
    """The plan, if `by` can obey it.

    Args:
        plan: A plan, or anything with a method `as_plan` that gives one.
        by: Who is asked to.

    Raises:
        PlanError: If it is no plan, or one that `by` cannot obey; the message says why
            and what to pass.

    Examples:
        >>> import retape
        >>> check_plan(retape.tiers(memory=2, disk=4), JAX)
        Traceback (most recent call last):
            ...
        retape._errors.PlanError: `plan=retape.tiers(levels=(retape.Tier('memory', 2),
        retape.Tier('disk', 4, write=5.0, read=5.0)))` cannot be obeyed here: it is
        obeyed action by action, by `retape.adjoint` and `retape.driver.run`, and
        `retape.jax` makes a schedule of its own. Pass another plan, such as
        `retape.fixed_space(snapshots=20)`, `retape.logarithmic()` or
        `retape.within(...)`; or, with this plan, `store=retape.DiskStore(...)` or
        another store: the host then steers the run.
    """
    given = _as_plan(plan)
    _check_given(given)
    why = by.refusal(given)
    if why is not None:
        raise PlanError(
            f"`plan={given!r}` cannot be obeyed here: {why}. {by.advice(given)}"
        )
    return given


def _as_plan(plan: Any) -> Any:
    """The plan that an object stands for, such as what `retape.jax.advise` found."""
    stands = hasattr(plan, "as_plan") and not isinstance(plan, type)
    return plan.as_plan() if stands else plan


_CALLS = {
    "fixed_space": "fixed_space(snapshots=8)",
    "fixed_time": "fixed_time(sweeps=2)",
    "logarithmic": "logarithmic()",
    "segments": "segments()",
    "within": 'within("1 GB")',
}
"""A call of each function that makes a plan."""


def _check_given(plan: Any) -> None:
    """Refuse what is no plan.

    Raises:
        PlanError: Says what to write instead.
    """
    if not isinstance(plan, Plan):
        raise PlanError(f"`plan={plan!r}` is not a plan. {_advice(plan)}")


def check_no_plan(name: str, value: Any) -> None:
    """Refuse a plan that stands in the place of another argument.

    Raises:
        PlanError: Says where a plan belongs.
    """
    if isinstance(value, Plan):
        raise PlanError(
            f"`{name}={value!r}` is a plan, which is passed by name. Write "
            "`plan=...` in front of it."
        )


def _advice(plan: Any) -> str:
    name = getattr(plan, "__name__", plan)
    if isinstance(name, str) and name.removeprefix("retape.") in _CALLS:
        return f"Write `plan=retape.{_CALLS[name.removeprefix('retape.')]}`."
    try:
        parse_bytes(plan)
    except (PlanError, TypeError):
        return (
            "Pass one that `retape.fixed_space`, `fixed_time`, `logarithmic`, "
            "`segments` or `within` makes."
        )
    said = f"For a budget of bytes write `plan=retape.within({plan!r})`"
    if isinstance(plan, int):
        return f"{said}, for snapshots `plan=retape.fixed_space(snapshots={plan!r})`."
    return f"{said}."


def on_host(plan: Plan | None) -> Plan:
    """The same plan with its snapshots in the host's memory.

    Args:
        plan: One that a compiled gradient obeys; by default `retape.logarithmic()`.

    Raises:
        PlanError: If it counts bytes, of which those snapshots would be none.

    Examples:
        >>> import retape
        >>> on_host(retape.fixed_space(snapshots=20)).offload
        'host'
    """
    if plan is None:
        return Plan(offload="host")
    if plan.budget is None:
        return replace(plan, offload="host")
    raise PlanError(
        f"`offload='host'` does not go with `plan={plan!r}`: a budget counts what "
        "a gradient holds on the device, not what waits on the host. Pass a number "
        "of snapshots, such as `retape.fixed_space(snapshots=20, offload='host')`."
    )

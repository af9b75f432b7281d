"""The plan of a chain whose steps differ."""

from collections.abc import Sequence, Set
from dataclasses import dataclass

from retape._bytes import parse_bytes
from retape._errors import PlanError
from retape.plan._options import Kind, keeps_tapes
from retape.plan._prediction import Bytes
from retape.plan._scheduled import ScheduledPlan
from retape.schedule import Chain


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ChainPlan(ScheduledPlan):
    """`retape.chain`."""

    forward: tuple[float, ...] = ()
    states: tuple[int, ...] = ()
    tapes: tuple[int, ...] = ()
    units: int | None = None
    store: frozenset[Kind] = frozenset({"state", "tape"})

    @property
    def name(self) -> str:
        return "chain"

    @property
    def keeps_tapes(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Slots may hold tapes, unless the user says otherwise."""
        return "tape" in self.store

    def _schedule(self, n: int, sizes: Bytes | None) -> Chain:
        """The cheapest persistent schedule; the bytes are those of the plan."""
        if n != len(self.forward):
            raise PlanError(
                f"this chain has {len(self.forward)} steps and the run has {n}. Pass "
                "`forward`, `states` and `tapes` with one entry for every step."
            )
        return Chain(
            self.forward,
            self.states,
            self.tapes,
            self.limit,
            self.units,
            keep_tapes=self.keeps_tapes,
        )


def chain(
    *,
    forward: Sequence[float],
    states: Sequence[int],
    tapes: Sequence[int],
    budget: int | str,
    units: int | None = None,
    store: Set[Kind] = frozenset({"state", "tape"}),
) -> ChainPlan:
    """A plan for steps that differ, in cost and in bytes, within a budget of bytes.

    Optimal among persistent schedules: a snapshot is kept until its own step is
    reversed. A tape is kept while the run goes on where that is cheaper than coming
    back, as in Rotor. `retape.schedule.Chain` has the recurrence.

    Args:
        forward: The cost of each step.
        states: The bytes of the state before each step.
        tapes: The bytes of the tape of each step.
        budget: Bytes for snapshots and tape together, or a text such as "512 MiB".
        units: Sizes are rounded up to multiples of budget / units: 200 steps at 500
            units take some seconds, and NumPy. By default bytes are exact, which small
            chains can afford, and chains of few different sizes.
        store: What may be kept while the run goes on: `{"state"}` where a machine
            cannot hold tapes.

    Raises:
        PlanError: If an option is another plan's or cannot be, or `budget` is no number
            of bytes; when used, if the table would be too large.
        BudgetError: When used, if the budget is too small; the least is named.

    Examples:
        >>> import retape
        >>> plan = retape.chain(
        ...     forward=[1, 5, 1], states=[2, 9, 2], tapes=[3, 3, 3], budget=8
        ... )
        >>> plan.predict(3).cost, plan.predict(3).peak_bytes
        (1.0, 8)
    """
    try:
        entries = tuple(forward), tuple(states), tuple(tapes)
    except TypeError:
        raise PlanError(
            f"`forward={forward!r}`, `states={states!r}` and `tapes={tapes!r}` are not "
            "valid: pass three sequences with one entry for every step."
        ) from None
    return ChainPlan(
        forward=entries[0],
        states=entries[1],
        tapes=entries[2],
        memory=parse_bytes(budget),
        units=units,
        store=frozenset({"state", "tape"} if keeps_tapes(store) else {"state"}),
    )

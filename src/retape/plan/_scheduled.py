"""Plans that only their schedule tells: dynamic programmes; two of them.

Most need the number of steps, and whoever obeys does so action by action:
`retape.adjoint`, `retape.driver.run`, VLAD and chains of PyTorch functions. An engine
that makes its own schedule from (alpha, d, t) asks `resolve`, which refuses.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import ClassVar

from retape._bytes import parse_bytes
from retape._errors import PlanError
from retape.plan._base import Plan
from retape.plan._options import Kind, keeps_tapes
from retape.plan._pick import MANY_STEPS, refuse_unknown_length
from retape.plan._prediction import Bytes, Resolved
from retape.schedule import Chain, Mixed, OnlineMixed


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ScheduledPlan(Plan):
    """A plan whose schedule is obeyed action by action."""

    is_tree: ClassVar[bool] = False

    @property
    def needs_length(self) -> bool:
        """Its schedule comes out of a dynamic programme over all steps."""
        return True

    def _resolve(self, n: int | None, sizes: Bytes | None) -> Resolved:
        """Refused: this plan is no (alpha, d, t); `schedule` and `predict` work."""
        if n is None and self.needs_length:
            since = "schedule comes out of a dynamic programme"
            refuse_unknown_length(self._shown, since)
        raise PlanError(
            f"`{self._shown}` cannot be expressed as a stage length, a number of "
            "snapshots and a number of sweeps, which this engine needs. It is for "
            "`retape.adjoint` and `retape.driver.run`, which obey it action by action. "
            "Pass another plan here, such as `fixed_space(snapshots=20)`."
        )

    @property
    def _shown(self) -> str:
        """The plan in messages."""
        return self.name


def stage_within(n: int, stage: int | None, roomy: int) -> int:
    """The stage length asked for, or else `roomy`; no longer than the run."""
    return max(1, min(roomy if stage is None else stage, n))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MixedSpace(ScheduledPlan):
    """`retape.fixed_space(store={"state", "tape"})`."""

    keeps_tapes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super(MixedSpace, self).__post_init__()
        if self.split != "binomial":
            raise PlanError(
                f"`split={self.split!r}` does not go with tapes in slots: where to cut "
                "comes out of a dynamic programme. Leave it out."
            )

    @property
    def needs_length(self) -> bool:
        """States are placed while the end is not known, and tapes on the way back."""
        return False

    def _schedule(self, n: int, sizes: Bytes | None) -> Mixed:
        """The mixed schedule; with bytes, slots are shared out by bytes."""
        return Mixed(n, *self._room(n, sizes))

    def _online(self, sizes: Bytes | None) -> OnlineMixed:
        return OnlineMixed(*self._room(MANY_STEPS, sizes))

    def _room(self, n: int, sizes: Bytes | None) -> tuple[int, int, int, int]:
        """What all slots, a state and a tape take, and the stage length."""
        w, r = sizes if sizes and min(sizes) > 0 else (1, 1)
        alpha = stage_within(n, self.stage, w // r)
        # Whole units, rounded so that bytes are kept: a tape takes several slots, or
        # a state's bytes hold several tapes.
        tape = -(-alpha * r // w) if sizes else 1
        state = min(_FINEST, max(1, w // (alpha * r))) if sizes else 1
        assert self.snapshots is not None, "`fixed_space` has it"
        return self.snapshots * state, state, tape, alpha

    def __repr__(self) -> str:
        given = f"snapshots={self.snapshots}"
        given += "" if self.stage is None else f", stage={self.stage}"
        return f"retape.fixed_space({given}, store={{'state', 'tape'}})"

    @property
    def _shown(self) -> str:
        return 'fixed_space(store={"state", "tape"})'


_FINEST = 8
"""The most tapes that are counted into one state's bytes; more make large tables."""


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

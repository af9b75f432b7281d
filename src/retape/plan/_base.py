"""Plans: what the user fixes, and how the rest follows from the length of a run.

The paper's `PICK` (Figs. 26 and 27) chooses alpha, d and t from n. A plan is that
choice as data: it knows no framework and no program. An engine asks it what it needs
and may do (`needs_length`, `keeps_tapes`, `budget`, `offload`, ...), and to `resolve` a
number of steps and the bytes of a capsule and of a taped step. No engine asks which
kind of plan it is: `_obeyers` says who can do what, `_registry` lists the kinds.
"""

from dataclasses import MISSING, Field, dataclass, fields, replace
from typing import Any, ClassVar, NoReturn, Self

from retape._errors import PlanError
from retape._html import record_html
from retape.plan._options import Loops, Memory
from retape.plan._prediction import AnySchedule, Bytes, Prediction, Resolved
from retape.schedule import Online, OnlineBinomial, Split
from retape.schedule._whole import whole

MANY_STEPS = 1 << 40
"""What an unknown length is taken for where a plan needs a bound: 10^12 steps."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Plan:
    """Base class of all plans; `retape.fixed_space` and its like make one.

    Its attributes are what an engine asks; a kind of plan leaves those alone that it
    has not.

    Attributes:
        NAME: The function that makes such plans.
        is_tree: The plan is (alpha, d, t) and a way to cut intervals, so that an engine
            can make its own schedule from `resolve`. Otherwise only `schedule` tells
            what to do, and it is obeyed action by action.
        needs_length: The number of steps must be known before the run.
        keeps_tapes: Slots may hold tapes.
        sizes_stages: How long stages are is what the plan is about: leave it alone.
        stage: The stage length that the user has fixed, or `None`.
        split: Where intervals are cut.
        offload: The memory in which snapshots wait, or `None` for the device's own.
        budget: The bytes that all that a gradient holds share, or `None`.
        loops: For whom a compiled gradient's loops are made, whatever it is lowered
            for; `None` to go by that. `retape.jax.grad(..., loops=...)` sets it.
    """

    NAME: ClassVar[str] = "Plan"
    is_tree: ClassVar[bool] = False
    needs_length: ClassVar[bool] = False
    sizes_stages: ClassVar[bool] = False
    keeps_tapes: ClassVar[bool] = False

    stage: int | None = None
    split: Split = "binomial"
    offload: Memory | None = None
    budget: int | None = None
    loops: Loops | None = None

    @property
    def far_tiers(self) -> tuple[str, ...]:
        """The tiers that it names beside the nearest one."""
        return ()

    def resolve(
        self,
        n: int | None,
        capsule_bytes: int | None = None,
        tape_bytes: int | None = None,
    ) -> Resolved:
        """Choose (alpha, d, t).

        Args:
            n: The number of steps, or `None` while it is unknown.
            capsule_bytes: The bytes of one snapshot, w.
            tape_bytes: The bytes of the tape of one step, r.

        Returns:
            The stage length, the number of snapshots and the number of sweeps.

        Raises:
            PlanError: If this plan needs something that is not known.
            BudgetError: If the bytes do not suffice; the least that would is named.

        Examples:
            >>> import retape
            >>> retape.fixed_space(snapshots=3).resolve(10)
            Resolved(alpha=1, d=3, t=2)
        """
        raise NotImplementedError(type(self).__name__)

    def schedule(
        self,
        n: int,
        capsule_bytes: int | None = None,
        tape_bytes: int | None = None,
    ) -> AnySchedule:
        """The schedule that this plan means for a run of n steps.

        Args:
            n: The number of steps.
            capsule_bytes: The bytes of one snapshot, w.
            tape_bytes: The bytes of the tape of one step, r.

        Raises:
            PlanError: If this plan needs something that is not known.
            BudgetError: If the bytes do not suffice; the least that would is named.

        Examples:
            >>> import retape
            >>> for action in retape.segments(stage=2).schedule(4):
            ...     print(action)
            Store(step=0, slot=0, tier='memory')
            Advance(start=0, stop=2)
            Reverse(start=2, stop=4)
            Restore(step=0, slot=0, tier='memory')
            Drop(step=0, slot=0, tier='memory')
            Reverse(start=0, stop=2)
        """
        raise NotImplementedError(type(self).__name__)

    def online(
        self, capsule_bytes: int | None = None, tape_bytes: int | None = None
    ) -> Online:
        """The schedule that this plan means for a run whose end is not known.

        Args:
            capsule_bytes: The bytes of one snapshot, w.
            tape_bytes: The bytes of the tape of one step, r.

        Raises:
            PlanError: If this plan needs something that is not known.
            BudgetError: If the bytes do not suffice; the least that would is named.

        Examples:
            >>> import retape
            >>> retape.fixed_space(snapshots=3).online()
            OnlineBinomial(snapshots=3, stage=1, placement='least-cost')
        """
        alpha, d, _ = self.resolve(None, capsule_bytes, tape_bytes)
        return OnlineBinomial(d, alpha)

    def predict(
        self,
        n: int,
        capsule_bytes: int | None = None,
        tape_bytes: int | None = None,
    ) -> Prediction:
        """Predict a run of n steps, without running it.

        Args:
            n: The number of steps.
            capsule_bytes: The bytes of one snapshot, w.
            tape_bytes: The bytes of the tape of one step, r.

        Raises:
            PlanError: If this plan needs something that is not known.
            BudgetError: If the bytes do not suffice; the least that would is named.

        Examples:
            >>> import retape
            >>> prediction = retape.fixed_space(snapshots=9).predict(1000)
            >>> prediction.advances, prediction.peak_snapshots, prediction.t
            (3999, 9, 5)
        """
        raise NotImplementedError(type(self).__name__)

    def with_stage(self, stage: int) -> Self:
        """The same plan with stages of so many steps, unless the user has fixed them.

        Examples:
            >>> import retape
            >>> retape.logarithmic().with_stage(8)
            retape.logarithmic(stage=8)
            >>> retape.logarithmic(stage=2).with_stage(8)
            retape.logarithmic(stage=2)
        """
        return replace(self, stage=stage) if self.stage is None else self

    def for_batch(self, runs: int) -> Self:
        """The plan for so many runs at a time: a budget is for each of them.

        Examples:
            >>> import retape
            >>> retape.within("1 kB").for_batch(3)
            retape.within(3000)
        """
        return self if self.budget is None else replace(self, budget=self.budget * runs)

    @property
    def counts_bytes(self) -> bool:
        """Whether bytes were given to it: it is made by the first state and tape."""
        return self.budget is not None

    @property
    def limit(self) -> int:
        """The budget of a plan that has one."""
        assert self.budget is not None, "asked only of a plan with a budget"
        return self.budget

    def _repr_html_(self) -> str:
        """Its options as a table, for notebooks."""
        return record_html(self)

    def __repr__(self) -> str:
        """The call that makes this plan."""
        # What must be said comes first, such as `snapshots`; what goes without saying
        # is left out.
        given = [
            f"{each.name}={getattr(self, each.name)!r}"
            for each in sorted(
                fields(self), key=lambda f: _default_of(f) is not MISSING
            )
            if each.name != "loops"  # an option of who obeys the plan
            if getattr(self, each.name) != _default_of(each)
        ]
        return f"retape.{self.NAME}({', '.join(given)})"


def _default_of(each: Field[Any]) -> Any:
    made = each.default_factory
    return each.default if made is MISSING else made()


def refuse_unknown_length(kind: str, since: str) -> NoReturn:
    """Refuse a run whose length only its end tells.

    Args:
        kind: The plan.
        since: Why it needs the length.

    Raises:
        PlanError: Always.
    """
    raise PlanError(
        f"`{kind}` needs the number of steps beforehand, since its {since}, and this "
        "run tells its length only at its end. Use `fixed_space(snapshots=...)` with "
        "states only, `logarithmic()` or `within(...)`."
    )


def both_bytes(capsule_bytes: int | None, tape_bytes: int | None) -> Bytes | None:
    """Both or neither."""
    if capsule_bytes is None and tape_bytes is None:
        return None
    if capsule_bytes is None or tape_bytes is None:
        raise PlanError(
            f"`capsule_bytes={capsule_bytes}` and `tape_bytes={tape_bytes}`: a stage "
            "length follows from both or from neither. Pass the two of them."
        )
    capsule_bytes = whole("capsule_bytes", capsule_bytes)
    tape_bytes = whole("tape_bytes", tape_bytes)
    if capsule_bytes < 0 or tape_bytes < 0:
        raise PlanError(
            f"`capsule_bytes={capsule_bytes}` and `tape_bytes={tape_bytes}`: bytes "
            "cannot be negative. Pass the bytes of a snapshot and of a taped step."
        )
    return capsule_bytes, tape_bytes

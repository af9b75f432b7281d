"""Plans: what the user fixes, and how the rest follows from the length of a run.

The paper's `PICK` (Figs. 26 and 27) chooses alpha, d and t from n. A plan is that
choice as data: it knows no framework and no program. An engine asks it what it needs
and may do (`needs_length`, `keeps_tapes`, `budget`, `offload`, ...), and to `resolve` a
number of steps and the bytes of a capsule and of a taped step. No engine asks which
kind of plan it is: `_support` says who can do what, `_parse` lists the kinds.

A `Plan` picks alpha and d; t and the schedule follow from the number of steps, and an
engine that cannot obey single actions makes the same schedule from the three numbers
(`retape.jax` in a compiled loop, `retape.torch` while a program runs). Plans whose
schedule alone says what to do are subclasses (`_scheduled`).
"""

import re
from dataclasses import MISSING, Field, dataclass, fields, replace
from typing import Any, ClassVar, Self, get_args

from retape._arguments import whole, word_of
from retape._bytes import parse_bytes
from retape._errors import PlanError
from retape.plan._options import (
    Loops,
    Memory,
    check_offload,
)
from retape.plan._pick import pick
from retape.plan._prediction import Bytes, Prediction, Resolved, predicted
from retape.schedule import OnlineBinomial, Schedule
from retape.schedule._offline import Offline
from retape.schedule._placing._online import Online
from retape.schedule._split import Split


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Plan:
    """What is fixed of a run, and the way to cut intervals.

    `retape.fixed_space(snapshots=...)` and its like are short for it.

    Args:
        snapshots: d is fixed: the start state's slot included.
        sweeps: t is fixed. One sweep is a run in segments.
        memory: The bytes that all that a gradient holds share, or a text such as
            "512 MiB". Of these three at most one is given; without any there are as
            many snapshots as sweeps.
        stage: The stage length that the user has fixed, or `None`.
        split: Where intervals are cut.
        offload: The memory in which snapshots wait, or `None` for the device's own.
        loops: For whom a compiled gradient's loops are made, whatever it is lowered
            for; `None` to go by that. `retape.jax.grad(..., loops=...)` sets it.

    Attributes:
        is_tree: The plan is (alpha, d, t) and a way to cut intervals, so that an engine
            can make its own schedule from `resolve`. Otherwise only `schedule` tells
            what to do, and it is obeyed action by action.
        keeps_tapes: Slots may hold tapes.

    Raises:
        PlanError: If an option cannot be, or does not go with another.

    Examples:
        >>> import retape
        >>> retape.Plan(snapshots=9) == retape.fixed_space(snapshots=9)
        True
        >>> retape.Plan(memory="1 kB")
        retape.within(1000)
        >>> retape.Plan(snapshots=9, memory="1 kB")
        Traceback (most recent call last):
            ...
        retape._errors.PlanError: `snapshots=9` and `memory=1000` do not go together:
        either follows from the other. Pass one of them.
    """

    is_tree: ClassVar[bool] = True
    keeps_tapes: ClassVar[bool] = False

    snapshots: int | None = None
    sweeps: int | None = None
    memory: float | str | None = None
    stage: int | None = None
    split: Split = "binomial"
    offload: Memory | None = None
    loops: Loops | None = None

    def __post_init__(self) -> None:
        made: dict[str, Any] = {
            "split": word_of("split", self.split, get_args(Split)),
            "offload": check_offload(self.offload),
        }
        for name in ("snapshots", "sweeps", "stage"):
            if getattr(self, name) is not None:
                made[name] = whole(name, getattr(self, name), 1)
        if self.memory is not None:
            made["memory"] = parse_bytes(self.memory, "memory")
        for name, value in made.items():
            object.__setattr__(self, name, value)
        if self.is_tree:
            self._check_together()

    def _check_together(self) -> None:
        """Refuse what says the same thing twice."""
        said = [
            f"`{name}={getattr(self, name)!r}`"
            for name in ("snapshots", "sweeps", "memory")
            if getattr(self, name) is not None
        ]
        if len(said) > 1:
            raise PlanError(
                f"{' and '.join(said)} do not go together: either follows from the "
                "other. Pass one of them."
            )
        if self.memory is None:
            return
        for name in ("stage", "offload"):
            if getattr(self, name) is not None:
                raise PlanError(
                    f"`{name}={getattr(self, name)!r}` does not go with `memory="
                    f"{self.memory}`: a budget is shared by all that a gradient holds. "
                    "Pass a number of snapshots, such as "
                    f"`fixed_space(snapshots=20, {name}={getattr(self, name)!r})`."
                )

    @property
    def name(self) -> str:
        """The function that makes such plans."""
        if self.memory is not None:
            return "within"
        if self.snapshots is not None:
            return "fixed_space"
        if self.sweeps is None:
            return "logarithmic"
        return "segments" if self.sizes_stages else "fixed_time"

    @property
    def budget(self) -> int | None:
        """The bytes that all that a gradient holds share, or `None`."""
        return None if self.memory is None else self.limit

    @property
    def limit(self) -> int:
        """The budget of a plan that has one."""
        assert isinstance(self.memory, int), "asked only of a plan with a budget"
        return self.memory

    @property
    def counts_bytes(self) -> bool:
        """Whether bytes were given to it: it is made by the first state and tape."""
        return self.budget is not None

    @property
    def needs_length(self) -> bool:
        """The number of steps must be known before the run."""
        return self.sweeps is not None

    @property
    def sizes_stages(self) -> bool:
        """How long stages are is what the plan is about: leave it alone."""
        return self.sweeps == 1 and self.split == "binomial"

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
        n = None if n is None else whole("n", n, 0)
        return self._resolve(n, both_bytes(capsule_bytes, tape_bytes))

    def _resolve(self, n: int | None, sizes: Bytes | None) -> Resolved:
        """`resolve`, of what has been checked; a subclass has its own."""
        if n == 0:
            return Resolved(1, 0, 0)
        alpha, d = pick(self, n, sizes)
        if n is None:
            return Resolved(alpha, d, None)
        alpha = min(alpha, n)
        stages = -(-n // alpha)
        d = min(d, stages - 1)
        return Resolved(alpha, d, Schedule(n, d, alpha, self.split).sweeps)

    def schedule(
        self,
        n: int,
        capsule_bytes: int | None = None,
        tape_bytes: int | None = None,
    ) -> Offline:
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
        n = whole("n", n, 0)
        return self._schedule(n, both_bytes(capsule_bytes, tape_bytes))

    def _schedule(self, n: int, sizes: Bytes | None) -> Offline:
        """`schedule`, of what has been checked; a subclass has its own."""
        alpha, d, _ = self._resolve(n, sizes)
        return Schedule(n, d, alpha, self.split)

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
        return self._online(both_bytes(capsule_bytes, tape_bytes))

    def _online(self, sizes: Bytes | None) -> Online:
        """`online`, of what has been checked; a subclass has its own."""
        alpha, d, _ = self._resolve(None, sizes)
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
        sizes = both_bytes(capsule_bytes, tape_bytes)
        schedule = self._schedule(whole("n", n, 0), sizes)
        return predicted(schedule, sizes, on_host=self.offload is not None)

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
        return self if self.budget is None else replace(self, memory=self.limit * runs)

    def __repr__(self) -> str:
        """The call that makes this plan."""
        # What must be said comes first, such as `snapshots`; what goes without saying
        # is left out.
        given = {
            each.name: getattr(self, each.name)
            for each in sorted(
                fields(self), key=lambda f: _default_of(f) is not MISSING
            )
            if each.name != "loops"  # an option of who obeys the plan
            if getattr(self, each.name) != _default_of(each)
        }
        name = self.name
        if name == "segments":
            del given["sweeps"]
        said = [f"{option}={value!r}" for option, value in given.items()]
        # A budget is what `within` is given first, without its name.
        bytes_as = "" if name == "within" else "budget="
        said = [re.sub("^memory=", bytes_as, each) for each in said]
        return f"retape.{name}({', '.join(said)})"


def _default_of(each: Field[Any]) -> Any:
    made = each.default_factory
    return each.default if made is MISSING else made()


def both_bytes(capsule_bytes: int | None, tape_bytes: int | None) -> Bytes | None:
    """Both or neither."""
    if capsule_bytes is None and tape_bytes is None:
        return None
    if capsule_bytes is None or tape_bytes is None:
        raise PlanError(
            f"`capsule_bytes={capsule_bytes}` and `tape_bytes={tape_bytes}`: a stage "
            "length follows from both or from neither. Pass the two of them."
        )
    w = whole("capsule_bytes", capsule_bytes, 0)
    return w, whole("tape_bytes", tape_bytes, 0)

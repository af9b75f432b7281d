"""The five plans: each fixes some of alpha, d and t and lets the rest follow."""

from collections.abc import Set
from dataclasses import dataclass

from ._budget import (
    stage_for_segments,
    stage_for_snapshots,
    stage_for_sweeps,
    within_budget,
)
from ._bytes import parse_bytes
from ._errors import PlanError
from ._mixed_plan import MixedSpace, mixed_space
from ._plan import MANY_STEPS, Bytes, TreePlan, needs_length
from ._plan_options import (
    Kind,
    Memory,
    check_count,
    check_offload,
    check_split,
    check_stage,
    check_tree,
    keeps_tapes,
    refuse_others,
)
from .schedule import (
    Split,
    TreeName,
    least_balanced,
    least_snapshots,
)


def fixed_space(
    *,
    snapshots: int,
    stage: int | None = None,
    split: Split = "binomial",
    tree: TreeName = "n-ary",
    store: Set[Kind] = frozenset({"state"}),
    offload: Memory | None = None,
    **others: object,
) -> "FixedSpace | MixedSpace":
    """A plan with a fixed number of snapshots: time grows like n^(1 + 1/d).

    Args:
        snapshots: d, the start state's slot included.
        stage: alpha. By default max(1, floor(2*d*w/r)) where the bytes w of a snapshot
            and r of a taped step are known, so that the tape has twice the bytes of the
            snapshots, or with `offload` of one; 1 where they are not.
        split: Where intervals are cut.
        tree: The paper's binary or n-ary tree; the actions are the same.
        store: What slots may hold: `{"state"}`, or `{"state", "tape"}` for a mixed
            schedule, which keeps the tape of a stage where that saves advances. The
            number of steps must then be known, and the machine must be able to hold
            tapes: `retape.adjoint` is. A tape takes as many slots as its bytes do
            (one, without bytes), and stages are as long as fits a slot.
        offload: `"host"` to keep snapshots in the host's memory, for gradients of
            `retape.jax`; they are then none of the device's bytes.
        **others: None; an option of another plan is refused by name.

    Example:
        >>> import retape
        >>> retape.fixed_space(snapshots=20).resolve(1000)
        Resolved(alpha=1, d=20, t=3)
        >>> retape.fixed_space(snapshots=20).predict(1000).advances
        2747
        >>> mixed = retape.fixed_space(snapshots=20, store={"state", "tape"})
        >>> mixed.predict(1000).advances
        1823
    """
    refuse_others("fixed_space", others)
    snapshots = check_count(
        "snapshots", snapshots, "holds the start state, so there is at least one"
    )
    if keeps_tapes(store):
        if offload is not None:
            raise PlanError(
                f"`offload={offload!r}` does not go with tapes in slots, which are for "
                "`retape.adjoint` and `retape.driver.run`: there a store says where "
                "snapshots are. Leave one of the two out."
            )
        return mixed_space(
            snapshots, check_stage(stage), check_split(split), check_tree(tree)
        )
    return FixedSpace(
        snapshots=snapshots,
        stage=check_stage(stage),
        split=check_split(split),
        tree=check_tree(tree),
        offload=check_offload(offload),
    )


def fixed_time(
    *,
    sweeps: int,
    stage: int | None = None,
    split: Split = "binomial",
    tree: TreeName = "n-ary",
    offload: Memory | None = None,
    **others: object,
) -> "FixedTime":
    """A plan that advances each step at most `sweeps` times: space grows like n^(1/t).

    Args:
        sweeps: t.
        stage: alpha. By default the one of least peak bytes where the bytes of a
            snapshot and of a taped step are known, and 1 where they are not.
        split: Where intervals are cut.
        tree: The paper's binary or n-ary tree; the actions are the same.
        offload: `"host"` to keep snapshots in the host's memory, for gradients of
            `retape.jax`; they are then none of the device's bytes.
        **others: None; an option of another plan is refused by name.

    Example:
        >>> import retape
        >>> retape.fixed_time(sweeps=3).resolve(1000)
        Resolved(alpha=1, d=17, t=3)
    """
    refuse_others("fixed_time", others)
    why = "is how often a step may be advanced, at least once"
    sweeps = check_count("sweeps", sweeps, why)
    return FixedTime(
        sweeps=sweeps,
        stage=check_stage(stage),
        split=check_split(split),
        tree=check_tree(tree),
        offload=check_offload(offload),
    )


def logarithmic(
    *,
    stage: int | None = None,
    split: Split = "binomial",
    tree: TreeName = "n-ary",
    offload: Memory | None = None,
    **others: object,
) -> "Logarithmic":
    """A plan with as many snapshots as sweeps, both growing like log n.

    Args:
        stage: alpha. By default max(1, floor(2*d*w/r)) as in `fixed_space`, with the
            least d that suffices; 1 without bytes.
        split: Where intervals are cut.
        tree: The paper's binary or n-ary tree; the actions are the same.
        offload: `"host"` to keep snapshots in the host's memory, for gradients of
            `retape.jax`; they are then none of the device's bytes.
        **others: None; an option of another plan is refused by name.

    Example:
        >>> import retape
        >>> retape.logarithmic().resolve(1000)
        Resolved(alpha=1, d=7, t=6)
    """
    refuse_others("logarithmic", others)
    return Logarithmic(
        stage=check_stage(stage),
        split=check_split(split),
        tree=check_tree(tree),
        offload=check_offload(offload),
    )


def segments(
    *, stage: int | None = None, offload: Memory | None = None, **others: object
) -> "Segments":
    """A plan that advances each step once (t = 1): space grows like sqrt(n).

    Args:
        stage: alpha. By default the one of least peak bytes; without bytes a snapshot
            is taken to be as large as the tape of a step, which gives sqrt(n).
        offload: `"host"` to keep snapshots in the host's memory, for gradients of
            `retape.jax`; they are then none of the device's bytes.
        **others: None; an option of another plan is refused by name.

    Example:
        >>> import retape
        >>> retape.segments().resolve(1024)
        Resolved(alpha=32, d=31, t=1)
    """
    refuse_others("segments", others)
    return Segments(stage=check_stage(stage), offload=check_offload(offload))


def within(
    budget: int | str,
    *,
    split: Split = "binomial",
    tree: TreeName = "n-ary",
    **others: object,
) -> "Within":
    """A plan that keeps to a number of bytes and advances as little as that allows.

    Args:
        budget: Bytes, or a text such as "512 MiB". Snapshots and the tape of a stage
            share it.
        split: Where intervals are cut.
        tree: The paper's binary or n-ary tree; the actions are the same.
        **others: None; an option of another plan is refused by name.

    Example:
        >>> import retape
        >>> retape.within("1 kB").resolve(1000, capsule_bytes=10, tape_bytes=20)
        Resolved(alpha=36, d=27, t=1)
    """
    if others.get("offload") is not None:
        raise PlanError(
            f"`offload={others['offload']!r}` is not an option of `within`: a budget "
            "is shared by all that a gradient holds, and what is on the host is none "
            "of it. Pass a number of snapshots, such as `fixed_space(snapshots=20, "
            "offload='host')`."
        )
    refuse_others("within", {k: v for k, v in others.items() if k != "offload"})
    return Within(
        budget=parse_bytes(budget), split=check_split(split), tree=check_tree(tree)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedSpace(TreePlan):
    """`retape.fixed_space`."""

    snapshots: int
    stage: int | None = None

    def _pick(self, n: int | None, both: Bytes | None) -> tuple[int, int]:
        if self.stage is not None:
            return self.stage, self.snapshots
        # What waits on the host is none of the bytes that a tape is weighed against.
        held = 1 if self.offload else self.snapshots
        alpha = stage_for_snapshots(held, *both) if both else 1
        return alpha, self.snapshots


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedTime(TreePlan):
    """`retape.fixed_time`."""

    sweeps: int
    stage: int | None = None

    def _pick(self, n: int | None, both: Bytes | None) -> tuple[int, int]:
        if n is None:
            needs_length("fixed_time")
        if self.split == "bisection":
            return self._bisect(n)
        alpha = self.stage
        if alpha is None:
            alpha = stage_for_sweeps(n, self.sweeps, *both) if both else 1
        return alpha, least_snapshots(-(-n // alpha), self.sweeps)

    def _bisect(self, n: int) -> tuple[int, int]:
        shortest = -(-n // (1 << self.sweeps))
        alpha = shortest if self.stage is None else self.stage
        if alpha < shortest:
            raise PlanError(
                f"`fixed_time(sweeps={self.sweeps}, stage={alpha}, "
                'split="bisection")` cannot be kept over '
                f"{n} steps: halving {self.sweeps} times leaves stages of {shortest}. "
                f"Pass `stage={shortest}` or more, or split binomially."
            )
        return alpha, max(1, (-(-n // alpha) - 1).bit_length())


@dataclass(frozen=True, slots=True, kw_only=True)
class Logarithmic(TreePlan):
    """`retape.logarithmic`."""

    stage: int | None = None

    def _pick(self, n: int | None, both: Bytes | None) -> tuple[int, int]:
        n = MANY_STEPS if n is None else n
        if self.stage is not None or both is None:
            alpha = self.stage or 1
            return alpha, self._least(-(-n // alpha))
        if self.offload:
            alpha = stage_for_snapshots(1, *both)
            return alpha, self._least(-(-n // alpha))
        d = 1
        while self._least(-(-n // stage_for_snapshots(d, *both))) > d:
            d += 1
        return stage_for_snapshots(d, *both), d

    def _least(self, stages: int) -> int:
        if self.split == "bisection":
            return max(1, (stages - 1).bit_length())
        return max(1, least_balanced(stages))


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments(TreePlan):
    """`retape.segments`."""

    stage: int | None = None

    def _pick(self, n: int | None, both: Bytes | None) -> tuple[int, int]:
        if n is None:
            needs_length("segments")
        alpha = self.stage or stage_for_segments(n, *(both or (1, 1)))
        return alpha, max(0, -(-n // alpha) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Within(TreePlan):
    """`retape.within`."""

    budget: int

    def _pick(self, n: int | None, both: Bytes | None) -> tuple[int, int]:
        if both is None:
            raise PlanError(
                f"`within({self.budget})` counts bytes, and neither `capsule_bytes` "
                "nor `tape_bytes` was given. Pass them, or a plan that counts "
                "snapshots, such as `fixed_space(snapshots=20)`."
            )
        return within_budget(n, *both, self.budget)

"""The short ways to make a `Plan`: what is fixed, and what follows from it."""

from collections.abc import Set
from typing import Any

from retape._arguments import whole
from retape._bytes import parse_bytes
from retape._errors import PlanError
from retape.plan._base import Plan
from retape.plan._options import (
    Kind,
    Memory,
    keeps_tapes,
)
from retape.plan._scheduled import MixedSpace
from retape.schedule._split import Split


def fixed_space(
    *,
    snapshots: int,
    stage: int | None = None,
    split: Split = "binomial",
    store: Set[Kind] = frozenset({"state"}),
    offload: Memory | None = None,
) -> Plan:
    """A plan with a fixed number of snapshots: time grows like n^(1 + 1/d).

    Args:
        snapshots: d, the start state's slot included.
        stage: alpha. By default max(1, floor(2*d*w/r)) where the bytes w of a snapshot
            and r of a taped step are known, so that the tape has twice the bytes of the
            snapshots, or with `offload` of one; 1 where they are not.
        split: Where intervals are cut.
        store: What slots may hold: `{"state"}`, or `{"state", "tape"}` for a mixed
            schedule, which keeps the tape of a stage where that saves advances. The
            number of steps must then be known, and the machine must be able to hold
            tapes: `retape.adjoint` is. A tape takes as many slots as its bytes do
            (one, without bytes), and stages are as long as fits a slot.
        offload: `"host"` to keep snapshots in the host's memory, for gradients of
            `retape.jax`; they are then none of the device's bytes.

    Raises:
        PlanError: If an option cannot be, is another plan's, or does not go with tapes.

    Examples:
        >>> import retape
        >>> retape.fixed_space(snapshots=20).resolve(1000)
        Resolved(alpha=1, d=20, t=3)
        >>> retape.fixed_space(snapshots=20).predict(1000).advances
        2747
        >>> mixed = retape.fixed_space(snapshots=20, store={"state", "tape"})
        >>> mixed.predict(1000).advances
        1823
    """
    whole("snapshots", snapshots, 1)
    if not keeps_tapes(store):
        return Plan(snapshots=snapshots, stage=stage, split=split, offload=offload)
    if offload is not None:
        raise PlanError(
            f"`offload={offload!r}` does not go with tapes in slots, which are for "
            "`retape.adjoint` and `retape.driver.run`: there a store says where "
            "snapshots are. Leave one of the two out."
        )
    return MixedSpace(snapshots=snapshots, stage=stage, split=split)


def fixed_time(
    *,
    sweeps: int,
    stage: int | None = None,
    split: Split = "binomial",
    offload: Memory | None = None,
) -> Plan:
    """A plan that advances each step at most `sweeps` times: space grows like n^(1/t).

    Args:
        sweeps: t.
        stage: alpha. By default the one of least peak bytes where the bytes of a
            snapshot and of a taped step are known, and 1 where they are not; with one
            sweep that of `segments`, which is the same plan.
        split: Where intervals are cut.
        offload: `"host"` to keep snapshots in the host's memory, for gradients of
            `retape.jax`; they are then none of the device's bytes.

    Raises:
        PlanError: If an option cannot be, or is another plan's.

    Examples:
        >>> import retape
        >>> retape.fixed_time(sweeps=3).resolve(1000)
        Resolved(alpha=1, d=17, t=3)
    """
    whole("sweeps", sweeps, 1)
    return Plan(sweeps=sweeps, stage=stage, split=split, offload=offload)


def logarithmic(
    *,
    stage: int | None = None,
    split: Split = "binomial",
    offload: Memory | None = None,
) -> Plan:
    """A plan with as many snapshots as sweeps, both growing like log n.

    Args:
        stage: alpha. By default max(1, floor(2*d*w/r)) as in `fixed_space`, with the
            least d that suffices; 1 without bytes.
        split: Where intervals are cut.
        offload: `"host"` to keep snapshots in the host's memory, for gradients of
            `retape.jax`; they are then none of the device's bytes.

    Raises:
        PlanError: If an option cannot be, or is another plan's.

    Examples:
        >>> import retape
        >>> retape.logarithmic().resolve(1000)
        Resolved(alpha=1, d=7, t=6)
    """
    return Plan(stage=stage, split=split, offload=offload)


def segments(*, stage: int | None = None, offload: Memory | None = None) -> Plan:
    """A plan that advances each step once (t = 1): space grows like sqrt(n).

    Args:
        stage: alpha. By default the one of least peak bytes; without bytes a snapshot
            is taken to be as large as the tape of a step, which gives sqrt(n).
        offload: `"host"` to keep snapshots in the host's memory, for gradients of
            `retape.jax`; they are then none of the device's bytes.

    Raises:
        PlanError: If an option cannot be, or is another plan's.

    Examples:
        >>> import retape
        >>> retape.segments().resolve(1024)
        Resolved(alpha=32, d=31, t=1)
    """
    return Plan(sweeps=1, stage=stage, offload=offload)


def within(
    budget: float | str,
    *,
    split: Split = "binomial",
) -> Plan:
    """A number of bytes to keep to, with as little work done again as that allows.

    It is a plan, and accepted wherever a budget is meant: as `plan=`, and as the
    `policy=` of `retape.jax.checkpoint` and of the loops.

    As a plan it chooses the stage length and the number of snapshots. Where the length
    of a run is not known, half of the bytes go to either. A compiled loop of unknown
    length (`retape.jax`) takes room for 1,024 snapshots at most, which is filled at
    each run; with that a million steps are advanced once.

    As a policy of `retape.jax` it chooses for the pieces of a function whether they are
    stored, run again but for their matrix products, or run again whole. Their gradients
    are compiled, by bisection, and the cheapest whose temporaries keep to the budget by
    the compiler's own figure is taken: that of `jax.jit(jax.grad(f))`, by the arguments
    that the gradient is taken by. Arguments, gradients and the value are not counted.
    This takes some compilations when a derivative is taken (about ten of each function;
    the same function is not searched again), and a larger budget never leads to more
    work. Under an outer `vmap`, or as a part of a larger program, the figure is that of
    the function alone.

    Args:
        budget: Bytes, or a text such as "512 MiB". Snapshots and the tape of a stage
            share it.
        split: Where intervals are cut.

    Raises:
        PlanError: If `budget` is no number of bytes, or an option cannot be, or is
            another plan's.
        BudgetError: When the plan is used, if the budget is below the least possible,
            which is named.

    Examples:
        >>> import retape
        >>> retape.within("1 kB").resolve(1000, capsule_bytes=10, tape_bytes=20)
        Resolved(alpha=36, d=27, t=1)
    """
    return Plan(memory=parse_bytes(budget), split=split)


def budgeted(plan: Any, memory: float | str | None) -> Any:
    """The plan that `plan=` or `memory=` asks for, wherever both may be given.

    Raises:
        PlanError: If both are given, or `memory` is no number of bytes.

    Examples:
        >>> budgeted(None, "1 kB")
        retape.within(1000)
    """
    if memory is None:
        return plan
    if plan is not None:
        raise PlanError(
            f"`plan={plan!r}` and `memory={memory!r}` both say what a gradient may "
            "take. Leave one of them out; a budget is a plan, too, `retape.within`."
        )
    return Plan(memory=parse_bytes(memory, "memory"))

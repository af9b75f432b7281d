"""`checkpoint_sequential`: a chain of functions, by segments, a plan or a budget.

A budget is that of `recompute` around the calls: it learns from a run what each part
saves, what crosses between parts, what each costs, and later runs follow the schedule
of least cost. With a plan the functions are its steps.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn

from retape._arguments import whole
from retape._errors import PlanError
from retape.engines.eager._limits import Limits, read_bytes
from retape.engines.eager.api._checkpoint import checkpoint
from retape.engines.eager.api._recompute import Recomputation, is_recording
from retape.engines.eager.keep._offload import Store, as_store
from retape.engines.eager.plan._from_schedule import PlannedFunctions, descents_of
from retape.engines.eager.plan._planned_backward import PlannedSweep
from retape.engines.eager.record._dispatch_mode import (
    active_recorder,
    paused_recording,
)
from retape.plan._base import Plan
from retape.plan._support import CHAIN, check_plan
from retape.schedule._action import Action
from retape.storage._tiered import name_tiers

Functions = nn.Sequential | Sequence[Callable[[Any], Any]]


def checkpoint_sequential(
    functions: Functions,
    segments: int | None = None,
    input: Any = None,
    use_reentrant: bool | None = None,
    *,
    memory: int | float | str | None = None,
    plan: Plan | Iterable[Action] | None = None,
    store: Store | str | None = None,
    preserve_rng_state: bool = True,
) -> Any:
    """Run a chain of functions, keeping the inputs of segments, a plan or a budget.

    Args:
        functions: The chain. Each takes what the one before returns.
        segments: Parts of equal length, all but the last recomputed; as in PyTorch.
        input: What the first function is given.
        use_reentrant: Accepted; there is one implementation.
        memory: Instead of `segments`: a budget in bytes, or text such as `"2GB"`, as
            `recompute(memory=...)` around the calls. The second run of a chain follows
            the schedule of least cost, in which parts are kept, recomputed once, or
            several times.
        plan: Instead of both: a plan such as `retape.fixed_space(snapshots=4)`, or
            actions such as a `retape.schedule.Chain`, with the functions as steps.
            `retape.within(bytes)` is `memory=bytes`.
        store: With `memory`: where snapshots go, as for `recompute`. They are not
            counted then, each part is recomputed at most once, nothing is measured.
            With `plan`: where its snapshots go, those of `retape.tiers` on the tiers
            that it says. Without a store all of them are in memory.
        preserve_rng_state: Accepted; random state is always restored.

    Returns:
        What the last function returns.

    Raises:
        PlanError: If not exactly one of `segments`, `memory` and `plan` is given, if
            the plan is not one of that many functions, or a `store` goes with
            `segments`.
        BudgetError: If the chain cannot be reversed in `memory`.

    Examples:
        >>> chain = [torch.nn.Linear(9, 9) for _ in range(30)]
        >>> x = checkpoint_sequential(chain, input=torch.ones(2, 9), memory="1MB")
        >>> x.sum().backward()

    References:
        Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova: Optimal checkpointing for
        heterogeneous chains (2019).
    """
    del use_reentrant, preserve_rng_state
    if not isinstance(functions, Iterable):
        raise PlanError(
            f"`functions={functions!r}` is not a chain. Pass an `nn.Sequential`, or "
            "the functions in a list."
        )
    chain = list(functions)
    if isinstance(segments, torch.Tensor):
        raise PlanError(
            "`segments` is a tensor. Pass the input of the first function by name: "
            "`checkpoint_sequential(functions, segments, input=x)`."
        )
    if sum(each is not None for each in (segments, memory, plan)) != 1:
        raise PlanError(
            f"`segments={segments}`, `memory={memory}` and `plan={plan}`: give exactly "
            "one of them."
        )
    if plan is not None and (isinstance(plan, str) or not isinstance(plan, Iterable)):
        plan = check_plan(plan, CHAIN)
        if plan.is_tree and plan.budget is not None:
            memory, plan = plan.budget, None
    if store is not None and segments is not None:
        raise PlanError(
            f"`store={store!r}` is for `memory=` and `plan=`: what segments keep is "
            "in memory. Give one of these, or leave `store` out."
        )
    if memory is not None:
        limits = Limits(read_bytes(memory), None, 0)
        kept = None if store is None else as_store(store)
        with Recomputation(limits, store=kept):
            return _call_all(chain, input)
    if plan is not None:
        return _by_plan(chain, input, plan, store)
    return _by_segments(chain, input, whole("segments", segments))


def _by_segments(chain: list[Callable[[Any], Any]], input: Any, segments: int) -> Any:
    if not 1 <= segments <= max(1, len(chain)):
        raise PlanError(
            f"`segments={segments}` parts of `{len(chain)}` functions cannot be made; "
            "give between 1 and their number."
        )
    size = len(chain) // segments
    for k in range(segments - 1):
        input = checkpoint(_call_all, chain[k * size : (k + 1) * size], input)
    return _call_all(chain[(segments - 1) * size :], input)


def _call_all(functions: Sequence[Callable[[Any], Any]], value: Any) -> Any:
    for function in functions:
        value = function(value)
    return value


def _by_plan(
    chain: list[Callable[[Any], Any]],
    input: Any,
    plan: Plan | Iterable[Action],
    store: Store | str | None,
) -> Any:
    actions = plan if isinstance(plan, Iterable) else plan.schedule(len(chain))
    descents = descents_of(actions, len(chain))
    if not chain or is_recording():  # one further out rules
        return _call_all(chain, input)
    limits = Limits(memory=None, snapshots=len(chain) + 1, stage=2**62)
    kept = None if store is None else as_store(store)
    if kept is not None:
        name_tiers(kept, getattr(plan, "tier_names", ()))
    with Recomputation(limits, store=kept):
        recorder = active_recorder()
        assert recorder is not None
        run = recorder.run
        functions = PlannedFunctions(run, descents)
        for k, function in enumerate(chain):
            with paused_recording():  # what it puts away is no part of the program
                functions.come_to(k)
            input = function(input)
        functions.leave_unit()
    if isinstance(run.sweep, PlannedSweep):  # else nothing of it is to be reversed
        run.sweep.follow(functions.plan())
    return input

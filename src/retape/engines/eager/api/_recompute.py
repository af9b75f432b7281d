"""`recompute`: the front end that asks for nothing but a budget."""

import contextlib
import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, ParamSpec, TypeVar

import torch

from retape._arguments import truth, whole, word_of
from retape._errors import BudgetError, PlanError, UnsupportedError
from retape._warn import warn
from retape.engines.eager._function_levels import (
    Levels,
    hooks_are_allowed,
    hooks_are_on,
    inside_of_transform,
)
from retape.engines.eager._limits import (
    Limits,
    automatic_budget,
    check_callable,
    read_bytes,
    read_plan,
)
from retape.engines.eager._torch_compile import (
    being_compiled,
    compiled_code_runs_eagerly,
)
from retape.engines.eager._wrapper_tensors import refusal_of
from retape.engines.eager.api._estimate import (
    Estimate,
    estimated_budget,
    tell_if_another,
)
from retape.engines.eager.keep._keeper import Keeper
from retape.engines.eager.keep._offload import Store, as_store, keep_in
from retape.engines.eager.loop._recorder import LoopBlock, in_loop
from retape.engines.eager.plan._book import Ledger, expect, ledger_for
from retape.engines.eager.plan._planned_backward import PlannedSweep
from retape.engines.eager.plan._planned_forward import PlannedKeeper
from retape.engines.eager.plan._program import Program, is_unlimited, price_of
from retape.engines.eager.record._dispatch_mode import Recorder, active_recorder
from retape.engines.eager.record._policy import Policy, as_function
from retape.engines.eager.record._regions import RegionNames
from retape.engines.eager.replay._backward import Sweep
from retape.engines.eager.trace._report import EagerReport, Tally
from retape.engines.eager.trace._run import Run
from retape.engines.eager.trace._trace import Trace
from retape.plan._base import Plan

P = ParamSpec("P")
R = TypeVar("R")


# Operators of a stage where nobody says how many.
_STAGE = 64


class Recomputation:
    """A context manager and a decorator. `report` tells about the latest run.

    Inside another recomputation it does nothing: the outer one rules.
    """

    def __init__(
        self,
        limits: Limits,
        verify: bool = False,
        policy: Policy | None = None,
        loop: bool = False,
        store: Store | None = None,
        known: Program | None = None,
        automatic: bool = False,
    ) -> None:
        self._limits = limits
        self._known, self._automatic = known, automatic
        self._loop = loop
        self._verify = verify
        self._policy = policy
        self._store = store
        self._tally = Tally()
        watched = verify or policy is not None or loop
        self._watched = watched or (store is not None and not is_unlimited(store))
        self._ledger = self._ledger_of(limits)
        self._open: list[tuple[Recorder, contextlib.ExitStack] | LoopBlock | None] = []

    def _ledger_of(self, limits: Limits) -> Ledger | None:
        if limits.memory is None or self._watched:
            return None
        return ledger_for(limits.memory, price_of(self._store))

    @property
    def report(self) -> EagerReport:
        """Counts of the latest run so far."""
        return self._tally.report()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """The function, each call of which is a run of its own."""
        check_callable(
            function,
            "A recomputation takes the function itself, before it is called: "
            '`recompute(memory="1GB")(function)(x)`.',
        )
        if inspect.iscoroutinefunction(function) or _yields(function):
            raise UnsupportedError(
                f"`{getattr(function, '__name__', function)}` is an asynchronous "
                "function or a generator: its body runs after the call is over, where "
                "nothing is recorded. Write `with retape.torch.recompute(...)` around "
                "operators inside of it, without `await` or `yield` between them."
            )

        @functools.wraps(function)
        def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
            with Recomputation(
                self._limits, self._verify, self._policy, self._loop, self._store,
                self._known, self._automatic,
            ) as inner:  # fmt: skip
                self._tally = inner._tally
                return function(*args, **kwargs)

        return wrapped

    def __enter__(self) -> "Recomputation":
        if being_compiled():
            raise UnsupportedError(
                "A recomputation records eager operators and cannot be inside of a "
                "compiled function. Compile parts of the program (inside of "
                "`recompute` they run eagerly), or call it outside of `torch.compile`."
            )
        if is_recording():
            self._open.append(None)
            return self
        if hooks_are_on():
            warn(_HOOKS)
        if self._loop and inside_of_transform():
            raise UnsupportedError(
                "`recompute(mode='loop')` cannot begin inside of a transform of "
                "`torch.func`, whose tensors it would take for others. Leave `mode` "
                "out."
            )
        self._tally = Tally()
        if self._automatic:  # what the device has left where the run begins
            self._limits = replace(self._limits, memory=automatic_budget())
            self._ledger = self._ledger_of(self._limits)
        if self._loop:
            block = LoopBlock(self._limits, self._tally)
            self._open.append(block.__enter__())
            return self
        run = Run(Trace(), self._tally)
        if self._store is not None:
            keep_in(self._store, run)
        keeper, run.sweep = self._equipment(run)
        run.trace.verify = self._verify
        run.trace.keep = as_function(self._policy)
        run.names = self._policy if isinstance(self._policy, RegionNames) else None
        recorder = Recorder(run, keeper)
        with contextlib.ExitStack() as scope:  # nothing stays if Ctrl-C comes between
            _enter_hooks(scope, recorder)
            scope.enter_context(compiled_code_runs_eagerly())
            scope.enter_context(recorder)
            self._open.append((recorder, scope.pop_all()))
        return self

    def _equipment(self, run: Run) -> tuple[Keeper, Sweep]:
        """The keeper and the sweep that hold a run within its limits."""
        if self._known is not None:  # it may have been forgotten since
            expect(self._known)
        plan = None if self._ledger is None else self._ledger.plan()
        run.tally.plan = plan
        if plan is None:
            return Keeper(run, self._limits), PlannedSweep(run, self._limits)
        keeper = PlannedKeeper(run, self._limits, plan)
        return keeper, PlannedSweep(run, self._limits, plan)

    def __exit__(self, *exception: Any) -> None:
        opened = self._open.pop()
        if opened is None:
            return
        if isinstance(opened, LoopBlock):
            opened.__exit__(*exception)
            if (refusal := refusal_of(exception[1])) is not None:
                raise refusal from exception[1]
            return
        recorder, scope = opened
        scope.__exit__(*exception)
        refusal, run = refusal_of(exception[1]), recorder.run
        try:
            recorder.keeper.finish()
            run.end_of_recording()
        except Exception:
            if exception[0] is None:
                raise
            run.let_go()  # what was interrupted is half recorded, and is asked no more
        if refusal is not None:
            raise refusal from exception[1]
        if exception[0] is None:
            if run.names is not None:
                run.names.check(run)
            self._check_budget(recorder)
            if self._known is not None:
                tell_if_another(self._known, run)
            if self._ledger is not None:
                self._ledger.learn(run, recorder.keeper.relieved)
            if isinstance(run.sweep, PlannedSweep):
                run.sweep.begin()

    def _check_budget(self, recorder: Recorder) -> None:
        """Refuse a budget that is too small; one that a plan breaks is kept by rules.

        The same program has been through this budget before it had a plan.
        """
        try:
            recorder.keeper.check_budget()
        except BudgetError:
            ledger, plan = self._ledger, recorder.run.tally.plan
            if plan is None or ledger is None:
                raise
            plan.leave()
            if not ledger.give_up_plan(recorder.run):
                raise


def is_recording() -> bool:
    """Tell whether this thread is inside of a recomputation."""
    return active_recorder() is not None or in_loop()


_HOOKS = (
    "A recomputation begins inside of `saved_tensors_hooks` (`save_on_cpu`, say), and "
    "these are not called for what is saved inside: it is not saved, but recomputed. "
    'Write them inside of the recomputation, or have snapshots moved (`store="cpu"`).'
)


def _yields(function: Any) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def _enter_hooks(scope: contextlib.ExitStack, recorder: Recorder) -> None:
    pack, unpack = recorder.pack, recorder.unpack
    if inside_of_transform():  # below it, no tensor shows that it gets a gradient
        recorder.run.trace.opaque = True
        levels = Levels(pack, unpack)
        pack, unpack = levels.pack, levels.unpack
    scope.enter_context(hooks_are_allowed())
    scope.enter_context(torch.autograd.graph.saved_tensors_hooks(pack, unpack))


def recompute(
    *,
    memory: int | float | str | Plan | None = None,
    snapshots: int | None = None,
    stage: int | None = None,
    plan: Plan | Estimate | None = None,
    verify: bool = False,
    policy: Policy | None = None,
    mode: Literal["operators", "loop"] = "operators",
    store: Store | str | None = None,
) -> Recomputation:
    """Bound what the program inside keeps for its backward.

    The forward runs inside, the backward is an ordinary one, anywhere. Nothing else in
    the program changes, and the gradients are the same to the last bit.

    Args:
        memory: A budget: bytes, text such as `"2GB"`, `retape.within(bytes)`, or
            `"auto"` for three quarters of what the device has left where a run begins.
            It covers what the program inside makes and what its backward needs,
            gradients of leaves and what FSDP2 holds excepted; on the CPU the record of
            its operators, too (up to a megabyte, tensors alone, if they and the record
            fit in one). A program that is run for the second time, or was estimated
            before (`retape.torch.estimate`), follows the schedule of least cost for it.
        snapshots: Instead: the most snapshots, the start included.
        stage: With `snapshots`: about how many operators are recomputed at once; 64 if
            it is left out.
        plan: Instead of both: `retape.fixed_space`, `logarithmic` or `within`, whose
            steps are operators. Other plans need the number of steps beforehand. Or
            what `retape.torch.estimate` has found for the program inside, with or
            without `memory`: its sensible budget is the default. The first run has a
            plan then, and one that does something else warns.
        verify: Compare every recomputed value with its first run. Slow; for finding
            out why a program is not the same when run again.
        policy: Operators whose results are kept whatever the budget, as one or more
            overloads or a function from an overload to a boolean; or `names`, for what
            is kept, and what is run again, by the names of regions.
        mode: `"loop"` notes calls of public functions instead of operators: cheaper
            for long loops of small ones, but it refuses, by name, in-place writes,
            custom functions, autocast and gradients inside.
        store: Where snapshots go once they are complete: `"cpu"` for host memory, or a
            `retape.DiskStore` or `retape.TieredStore` of this run's own. They are not
            counted in `memory` then.

    Returns:
        A context manager and decorator, with a `report`.

    Raises:
        PlanError: If not exactly one of `memory`, `snapshots` and `plan` is given, the
            plan is not one for a run of unknown length, an argument is not of its kind,
            or `stage` comes with bytes or with a plan that has one.
        StoreError: Inside, if a snapshot cannot be written; in the backward, if it
            cannot be read.
        BudgetError: On leaving, if the program cannot be reversed in `memory`; at once,
            if an estimate says so.
        UnsupportedError: Inside `torch.compile`.

    Examples:
        >>> model = torch.nn.Sequential(*[torch.nn.Linear(9, 9) for _ in range(30)])
        >>> with recompute(snapshots=4, stage=4) as run:
        ...     loss = model(torch.ones(2, 9)).sum()
        >>> loss.backward()
        >>> run.report.steps, run.report.recomputed > 0
        (32, True)
    """
    known = None
    if isinstance(plan, Estimate):
        others = {
            "snapshots": snapshots, "verify": verify or None, "policy": policy,
            "store": store, "mode": mode if mode == "loop" else None,
        }  # fmt: skip
        given = {name: each for name, each in others.items() if each is not None}
        memory, known = estimated_budget(plan, memory, given)
        plan = None
    if sum(each is not None for each in (memory, snapshots, plan)) != 1:
        raise PlanError(
            f"`memory={memory}`, `snapshots={snapshots}` and `plan={plan}`: give "
            "exactly one of them."
        )
    word_of("mode", mode, ("operators", "loop"))
    truth("verify", verify)
    if mode == "loop" and (verify or policy is not None or store is not None):
        raise PlanError(
            '`verify`, `policy` and `store` are for `mode="operators"`: a call that '
            '`mode="loop"` notes has no operators to compare, keep or move. Leave '
            "them out."
        )
    length = _STAGE if stage is None else whole("stage", stage, 1)
    if plan is not None:
        memory, snapshots, length = read_plan(plan, length)
    said = plan is not None and plan.stage is not None
    if stage is not None and (snapshots is None or said):
        raise PlanError(
            f"`stage={stage}` says how many operators are recomputed at once where "
            "`snapshots` are counted and no plan says it. Leave it out."
        )
    snapshots = None if snapshots is None else whole("snapshots", snapshots, 1)
    if automatic := memory == "auto":
        memory = automatic_budget()
    as_function(policy)  # what is no policy is refused here and not inside
    limits = Limits(None if memory is None else read_bytes(memory), snapshots, length)
    found = None if store is None else as_store(store)
    loop = mode == "loop"
    return Recomputation(limits, verify, policy, loop, found, known, automatic)

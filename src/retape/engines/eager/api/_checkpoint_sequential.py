"""`checkpoint_sequential`: a chain of functions, by segments, a plan or a budget.

Under a budget the first call of a chain on given shapes is run by the general engine
and measured: what each part saves, what crosses between parts, what each costs. Later
calls follow the schedule that the dynamic programme finds for these numbers.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import nn

from retape.engines.eager._errors import PlanError
from retape.engines.eager._limits import Limits, budget_of, read_bytes
from retape.engines.eager.analysis._measure import measure
from retape.engines.eager.analysis._measured import Measured
from retape.engines.eager.api._checkpoint import checkpoint
from retape.engines.eager.api._recompute import Recomputation
from retape.engines.eager.keep._keeper import Keeper
from retape.engines.eager.keep._offload import Store, as_store
from retape.engines.eager.plan._from_schedule import descents_of
from retape.engines.eager.plan._lru import Recent
from retape.engines.eager.plan._planned_backward import PlannedSweep
from retape.engines.eager.plan._planned_forward import PlannedKeeper, UnitSchedule
from retape.engines.eager.plan._program import Program
from retape.engines.eager.replay._backward import Sweep
from retape.engines.eager.trace._run import Run
from retape.schedule import Action
from retape.storage._tiered import name_tiers

Functions = nn.Sequential | Sequence[Callable[[Any], Any]]
_REMEMBERED = 64
_TRIES = 3


class Planner(Protocol):
    """A plan such as `retape.fixed_space(snapshots=4)`."""

    def schedule(self, n: int) -> Iterable[Action]:
        """The actions for n functions."""
        ...


def checkpoint_sequential(
    functions: Functions,
    segments: int | None = None,
    input: Any = None,
    use_reentrant: bool | None = None,
    *,
    memory: int | float | str | None = None,
    plan: Planner | Iterable[Action] | None = None,
    store: Store | str | None = None,
    preserve_rng_state: bool = True,
) -> Any:
    """Run a chain of functions, keeping the inputs of segments, a plan or a budget.

    Args:
        functions: The chain. Each takes what the one before returns.
        segments: Parts of equal length, all but the last recomputed; as in PyTorch.
        input: What the first function is given.
        use_reentrant: Accepted; there is one implementation.
        memory: Instead of `segments`: a budget in bytes, or text such as `"2GB"`. The
            first call on given shapes measures the chain; later ones follow the
            schedule of least cost for the measured sizes, in which parts are
            kept, recomputed once, or several times.
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
    if plan is not None and (budget := budget_of(plan)) is not None:
        memory, plan = budget, None
    if store is not None and segments is not None:
        raise PlanError(
            f"`store={store!r}` is for `memory=` and `plan=`: what segments keep is "
            "in memory. Give one of these, or leave `store` out."
        )
    if store is not None and memory is not None:
        limits = Limits(read_bytes(memory), None, 0)
        with Recomputation(limits, store=as_store(store)):
            return _call_all(chain, input)
    if memory is not None:
        return _within(chain, input, read_bytes(memory))
    if plan is not None:
        return _by_plan(chain, input, plan, store)
    assert segments is not None
    return _by_segments(chain, input, segments)


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


class ChainRecomputation(Recomputation):
    """A recomputation that follows a plan, and may measure what it runs."""

    _learns = False

    def __init__(
        self,
        limits: Limits,
        plan: UnitSchedule | None,
        measured: bool,
        store: Store | None = None,
    ) -> None:
        super().__init__(limits, store=store)
        self.plan = plan
        self.found: Measured | None = None
        self._measured = measured
        self._run: Run | None = None
        self._keeper: Keeper | None = None
        self._boundaries: list[int] = []

    def run(self, functions: Sequence[Callable[[Any], Any]], value: Any) -> Any:
        """Call the functions one after the other."""
        with self:
            for k, function in enumerate(functions):
                self._begin(k)
                value = function(value)
        run = self._run
        known = run is not None and run.living and not run.sections
        if self._measured and run is not None and known:
            nbytes = sum(tensor.nbytes for tensor in _tensors_in(value))
            self.found = measure(run, self._boundaries, nbytes)
        return value

    def _begin(self, k: int) -> None:
        if self._run is None:  # inside another recomputation
            return
        self._boundaries.append(len(self._run.trace.steps))
        plan = self.plan
        if plan is not None and plan.measured is None:
            assert isinstance(self._keeper, PlannedKeeper)
            self._keeper.begin(k)

    def _equipment(self, run: Run) -> tuple[Keeper, Sweep]:
        self._run = run
        if self.plan is None:
            keeper, sweep = super()._equipment(run)
        else:
            if self._store is not None:
                self.plan.store_in(self._store, run)
            keeper = PlannedKeeper(run, self._limits, self.plan)
            sweep = PlannedSweep(run, self._limits, self.plan)
        self._keeper = keeper
        return keeper, sweep


def _by_plan(
    chain: list[Callable[[Any], Any]],
    input: Any,
    plan: Planner | Iterable[Action],
    store: Store | str | None,
) -> Any:
    actions = plan if isinstance(plan, Iterable) else plan.schedule(len(chain))
    descents = descents_of(actions, len(chain))
    limits = Limits(memory=None, snapshots=len(chain) + 1, stage=2**62)
    schedule = UnitSchedule(descents, len(chain))
    kept = None if store is None else as_store(store)
    if kept is not None:
        name_tiers(kept, getattr(plan, "tier_names", ()))
    return ChainRecomputation(limits, schedule, False, kept).run(chain, input)


class ChainProgram(Program):
    """A chain, told by its functions and shapes: calls of it may yet differ."""

    def __init__(self, memory: int) -> None:
        super().__init__(memory)
        self._measurements = 0

    def wants_measuring(self) -> bool:
        """Tell whether the next call is to be measured."""
        return self.measured is None and self._measurements < _TRIES

    def learn(self, measured: Measured) -> None:
        """Look for a plan for what a call was measured to take."""
        self.measured = measured
        self._measurements += 1
        self.find_plan()

    def fail(self, plan: UnitSchedule) -> None:
        """Forget a failed run: its functions keep no values any more.

        A chain that did something else than was measured is measured anew.
        """
        if plan.excess:
            self.fit.learn(plan)
            self.find_plan()
        else:
            self.measured, self.descents = None, ()


_programs: Recent[Any, ChainProgram] = Recent(_REMEMBERED)
_programs_lock = threading.Lock()


def _within(chain: list[Callable[[Any], Any]], input: Any, memory: int) -> Any:
    program = _program(_key(chain, input, memory), memory)
    with _programs_lock:
        program.settle()
        plan, measured = program.plan(), program.wants_measuring()
    job = ChainRecomputation(Limits(memory, None, 0), plan, measured)
    value = job.run(chain, input)
    with _programs_lock:
        if job.found is not None:
            program.learn(job.found)
        elif plan is not None:
            program.watch(plan)
    return value


def _program(key: Any, memory: int) -> ChainProgram:
    with _programs_lock:
        return _programs.use(key, lambda: ChainProgram(memory))


def _key(chain: Sequence[Callable[[Any], Any]], input: Any, memory: int) -> Any:
    """Equal for calls that will probably do the same; a plan finds out if they do not.

    Identity would not do: the next function may be made where the last one died.
    """
    names = tuple(
        (
            getattr(each, "__qualname__", type(each).__qualname__),
            getattr(each, "training", None),
        )
        for each in chain
    )
    shapes = tuple(
        (each.shape, each.dtype, each.device, each.requires_grad)
        for each in _tensors_in(input)
    )
    return names, shapes, memory, torch.is_grad_enabled()


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors_in(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _tensors_in(each)

"""From a user's plan to the sizes of one sweep, and to blocks that are small enough.

A budget of bytes can be kept in several ways: stages of many steps, whose tape is
declared; stages of one step, reversed without a tape (`_direct`); the same with long
blocks cut into pieces (`_cut`), finer and finer. Each way that fits has a price
(`_price`), in the main how often it advances a step. The first that advances each step
at most once is taken, else the cheapest: cutting finer than needed only adds registers.

All that goes by estimates from above. Where they leave few snapshots, or none, each one
more is worth a compilation: the sweep is compiled as it would be, and what the compiler
reports that it takes says how many more there may be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

from jax.extend import core

from ..._errors import BudgetError
from ..._plan import Plan, TreePlan
from ..._plans import (
    FixedSpace,
    FixedTime,
    Logarithmic,
    Segments,
    Within,
    fixed_space,
    logarithmic,
)
from ._compile import Compiled
from ._cut import dearest
from ._exact import temporary_bytes
from ._price import price
from ._state import Settings
from ._work import direct_work_bytes, work_bytes

_LONG = 1 << 16
"""A stage so long that blocks which run once do not weigh in its bytes per step."""
_FINER = (1.5, 2, 3, 4, 6, 8, 12, 16, 32, 64)
"""How many times less a piece may tape than the hungriest block does."""
_WEIGHS = 4
"""How many times the work of a block a budget is, from where exactness is idle."""
_LINE = 1 << 24
"""A program without a loop is cut if it tapes more, whatever the plan."""
_PIECES = 64
"""Into how many pieces, about."""

Make = Callable[..., Compiled]
"""`compile_program`, or a test's variant of it."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to keep a budget."""

    compiled: Compiled
    settings: Settings
    price: float
    """See `_price`."""


@dataclass(frozen=True, slots=True)
class TooMuch:
    """A way that does not fit."""

    least: int
    """The least budget with which it would."""
    compiled: Compiled
    settings: Settings
    """The sizes with that budget."""


def default_plan() -> Plan:
    """What is used where the user says nothing: memory and time both logarithmic."""
    return logarithmic()


def bytes_per_step(compiled: Compiled) -> int:
    """Bytes of tape that one more step in a stage takes."""
    more = compiled.tape_bytes(2 * _LONG) - compiled.tape_bytes(_LONG)
    return -(-more // _LONG)


def snapshot_bytes(compiled: Compiled) -> int:
    """Bytes of one more snapshot: the capsule, and the controller's entries for it.

    A stage number, a slot, a program counter, the sweeps left; while the end is
    unknown, two dozen more numbers that the placement computes with.
    """
    return compiled.layout.capsule_bytes() + (
        28 if compiled.program.length is not None else 208
    )


def fixed_bytes(
    compiled: Compiled,
    stage: int = 2,
    *,
    thrift: bool = False,
    measured: bool = False,
) -> int:
    """Bytes that any sweep needs: registers, cotangents, kept values, what is held.

    With stages of one step what is on the tape counts among the block's work. That may
    be measured by the compiler.
    """
    held = compiled.layout.capsule_bytes() if compiled.program.length is None else 0
    work = (
        direct_work_bytes(compiled, thrift=thrift, measured=measured)
        if stage == 1
        else work_bytes(compiled)
    )
    return compiled.layout.fixed_bytes() + held + work


def stage_bytes(compiled: Compiled, stage: int) -> int:
    """Bytes of the tape of a stage."""
    return 4 if stage == 1 else compiled.tape_bytes(stage)


def settle(plan: Plan | None, compiled: Compiled) -> Settings:
    """Choose the number of snapshots and the stage length for this program as it is.

    Raises:
        PlanError: If the plan needs the number of steps and only a run can tell it.
        BudgetError: If a budget is below the least possible, which is named.
    """
    plan = plan or default_plan()
    if isinstance(plan, Within):
        return _best(plan, list(_ways(plan, compiled))).settings
    r = max(1, bytes_per_step(compiled))
    return _resolved(plan, compiled, r)


def fit(
    plan: Plan | None, jaxpr: core.ClosedJaxpr, active: Sequence[bool], make: Make
) -> tuple[Compiled, Settings]:
    """Compile a program, its blocks cut as the plan needs, and choose the sizes.

    Args:
        plan: The user's plan.
        jaxpr: The program.
        active: For each input, whether a derivative by it is wanted.
        make: What compiles a program, with a limit `piece` for what blocks tape.

    Raises:
        PlanError: If the plan needs the number of steps and only a run can tell it.
        BudgetError: If a budget is below the least possible, which is named.
    """
    plan = plan or default_plan()
    compiled = make(jaxpr, active)
    if not isinstance(plan, Within):
        if len(compiled.code) == 1 and dearest(compiled.program) > _LINE:
            piece = dearest(compiled.program) // _PIECES
            compiled = make(jaxpr, active, piece=piece)
            # How much is taped at a time the cuts say.
            plan = _of_single_steps(plan)
        return compiled, settle(plan, compiled)
    found: list[Way | TooMuch] = list(_ways(plan, compiled))
    if not _good(found) and plan.budget < _WEIGHS * direct_work_bytes(compiled):
        found += _singles(plan, compiled, compiled, measured=True)
    tried: list[Compiled] = []
    for finer in _finer(compiled, jaxpr, active, make):
        if _good(found):
            break
        tried.append(finer)
        found += _singles(plan, finer, compiled)
    if not any(isinstance(w, Way) for w in found):
        found += _measured(plan, tried, compiled)
    best = min(found, key=_rank)
    if isinstance(best, TooMuch):
        # Short loops stay one operation for the sake of time, which is no matter now.
        best = min([best, *_ways(plan, make(jaxpr, active, grain=0))], key=_rank)
    if isinstance(best, TooMuch) or best.price > 1:
        best = _as_compiled(plan, best, compiled, jaxpr, active)
    best = _best(plan, [best])
    return best.compiled, best.settings


def exactly(settings: Settings) -> Plan:
    """The plan that asks for these very sizes, whatever the bytes."""
    return fixed_space(
        snapshots=settings.snapshots, stage=settings.stage, split=settings.split
    )


def _of_single_steps(plan: Plan) -> Plan:
    assert isinstance(plan, FixedSpace | FixedTime | Logarithmic | Segments)
    return replace(plan, stage=1) if plan.stage is None else plan


def _resolved(plan: Plan, compiled: Compiled, r: int) -> Settings:
    n = compiled.program.length
    alpha, d, t = plan.resolve(n, snapshot_bytes(compiled), r)
    return _settings(plan, alpha, d, t)


def _settings(plan: Plan, alpha: int, d: int, t: int | None) -> Settings:
    # Placing snapshots without knowing the end is as good as knowing it up to C(s+2, 2)
    # stages and nearly so beyond, where counting first would cost every step once.
    split = plan.split if isinstance(plan, TreePlan) else "binomial"
    forward = "online" if split == "binomial" else "count"
    on_host = isinstance(plan, TreePlan) and plan.offload == "host"
    return Settings(max(d, 1), alpha, split, forward, t, on_host=on_host)


def _finer(
    whole: Compiled, jaxpr: core.ClosedJaxpr, active: Sequence[bool], make: Make
) -> Iterator[Compiled]:
    """The program cut finer and finer, as long as that makes a difference."""
    dear, blocks = dearest(whole.program), len(whole.code)
    for factor in _FINER:
        found = make(jaxpr, active, piece=int(dear / factor))
        if len(found.code) > blocks:
            blocks = len(found.code)
            yield found


def _ways(plan: Within, compiled: Compiled) -> Iterator[Way | TooMuch]:
    """A tape for several steps, and none for single steps."""
    yield _pooled(plan, compiled)
    yield from _singles(plan, compiled, compiled)


def _singles(
    plan: Within, compiled: Compiled, whole: Compiled, *, measured: bool = False
) -> Iterator[Way | TooMuch]:
    """Stages of one step, without and with what saves memory."""
    for thrift in (False, True):
        yield _direct(plan, compiled, whole, thrift=thrift, measured=measured)


def _measured(
    plan: Within, cuts: Sequence[Compiled], whole: Compiled
) -> Iterator[Way | TooMuch]:
    """The ways to run each of these, coarse ones first, by compiling hungry blocks.

    Finer pieces leave room for more snapshots, and make each of them larger: once that
    does not pay any more, still finer ones would only take time to compile.
    """
    cheapest = inf
    for each in cuts:
        ways = list(_singles(plan, each, whole, measured=True))
        yield from ways
        least = min((w.price for w in ways if isinstance(w, Way)), default=inf)
        if cheapest < inf and least >= cheapest:
            return
        cheapest = least


def _as_compiled(
    plan: Within,
    found: Way | TooMuch,
    whole: Compiled,
    jaxpr: core.ClosedJaxpr,
    active: Sequence[bool],
) -> Way | TooMuch:
    """The same with as many snapshots as fit by what the compiler reports."""
    compiled, settings = found.compiled, found.settings
    taken = temporary_bytes(jaxpr, active, compiled, settings)
    if taken is None:
        return found
    taken += _SPARE
    d = settings.snapshots + (plan.budget - taken) // snapshot_bytes(compiled)
    if d < 1:
        more = (settings.snapshots - 1) * snapshot_bytes(compiled)
        return TooMuch(taken - more, compiled, replace(settings, snapshots=1))
    settings = replace(settings, snapshots=_at_most(d, compiled, settings.stage))
    return Way(compiled, settings, price(compiled, settings, whole))


def _at_most(d: int, compiled: Compiled, stage: int) -> int:
    """No more snapshots than there can be."""
    n = compiled.program.length
    return d if n is None else max(1, min(d, -(-n // stage) - 1))


def _pooled(plan: Within, compiled: Compiled) -> Way | TooMuch:
    fixed = fixed_bytes(compiled)
    least = fixed + snapshot_bytes(compiled) + compiled.tape_bytes(1)
    if plan.budget < least:
        return TooMuch(least, compiled, _settings(plan, 1, 1, None))
    rest = replace(plan, budget=plan.budget - fixed)
    settings = _resolved(rest, compiled, max(1, bytes_per_step(compiled)))
    return Way(compiled, settings, price(compiled, settings, compiled))


def _direct(
    plan: Within,
    compiled: Compiled,
    whole: Compiled,
    *,
    thrift: bool = False,
    measured: bool = False,
) -> Way | TooMuch:
    w = snapshot_bytes(compiled)
    fixed = fixed_bytes(compiled, 1, thrift=thrift, measured=measured)
    fixed += stage_bytes(compiled, 1)
    if plan.budget < fixed + w:
        settings = replace(_settings(plan, 1, 1, None), thrift=thrift)
        return TooMuch(fixed + w, compiled, settings)
    d = _at_most((plan.budget - fixed) // w, compiled, 1)
    settings = replace(_settings(plan, 1, d, None), thrift=thrift)
    found = price(compiled, settings, whole) * (_TWICE if thrift else 1)
    return Way(compiled, settings, found)


_SPARE = 1024
"""For the alignment of what more snapshots bring with them."""
_TWICE = 1.05
"""What doing some arithmetic twice costs, against holding its results."""


def _good(found: Sequence[Way | TooMuch]) -> bool:
    return any(isinstance(w, Way) and w.price <= 1 for w in found)


def _rank(found: Way | TooMuch) -> tuple[bool, float]:
    """What fits before what does not; then the cheaper, the nearer to fitting."""
    if isinstance(found, Way):
        return False, found.price
    return True, found.least


def _best(plan: Within, found: Sequence[Way | TooMuch]) -> Way:
    best = min(found, key=_rank)
    if isinstance(best, Way):
        return best
    least = best.least
    raise BudgetError(
        f"`within({plan.budget})` is too little for this program: its registers, "
        f"their cotangents, one snapshot and the derivative of one step take {least} "
        f"bytes, however finely its blocks are cut. Pass `retape.within({least})` or "
        "more.",
        least,
    )

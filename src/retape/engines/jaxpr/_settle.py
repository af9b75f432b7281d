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
from dataclasses import replace
from math import inf

from jax.extend import core

from ..._plan import Plan
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
from ._sizes import snapshot_bytes
from ._state import Settings
from ._ways import TooMuch, Way, at_most, best_of, good, rank, resolved, singles, ways
from ._work import direct_work_bytes

_FINER = (1.5, 2, 3, 4, 6, 8, 12, 16, 32, 64)
"""How many times less a piece may tape than the hungriest block does."""
_WEIGHS = 4
"""How many times the work of a block a budget is, from where exactness is idle."""
_LINE = 1 << 24
"""A program without a loop is cut if it tapes more, whatever the plan."""
_PIECES = 64
"""Into how many pieces, about."""
_SPARE = 1024
"""For the alignment of what more snapshots bring with them."""

Make = Callable[..., Compiled]
"""`compile_program`, or a test's variant of it."""


def default_plan() -> Plan:
    """What is used where the user says nothing: memory and time both logarithmic."""
    return logarithmic()


def settle(plan: Plan | None, compiled: Compiled) -> Settings:
    """Choose the number of snapshots and the stage length for this program as it is.

    Raises:
        PlanError: If the plan needs the number of steps and only a run can tell it.
        BudgetError: If a budget is below the least possible, which is named.
    """
    plan = plan or default_plan()
    if isinstance(plan, Within):
        return best_of(plan, list(ways(plan, compiled))).settings
    return resolved(plan, compiled)


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
    found: list[Way | TooMuch] = list(ways(plan, compiled))
    if not good(found) and plan.budget < _WEIGHS * direct_work_bytes(compiled):
        found += singles(plan, compiled, compiled, measured=True)
    tried: list[Compiled] = []
    for finer in _finer(compiled, jaxpr, active, make):
        if good(found):
            break
        tried.append(finer)
        found += singles(plan, finer, compiled)
    if not any(isinstance(w, Way) for w in found):
        found += _measured(plan, tried, compiled)
    best = min(found, key=rank)
    if isinstance(best, TooMuch):
        # Short loops stay one operation for the sake of time, which is no matter now.
        best = min([best, *ways(plan, make(jaxpr, active, grain=0))], key=rank)
    if isinstance(best, TooMuch) or best.price > 1:
        best = _as_compiled(plan, best, compiled, jaxpr, active)
    best = best_of(plan, [best])
    return best.compiled, best.settings


def exactly(settings: Settings) -> Plan:
    """The plan that asks for these very sizes, whatever the bytes."""
    return fixed_space(
        snapshots=settings.snapshots, stage=settings.stage, split=settings.split
    )


def _of_single_steps(plan: Plan) -> Plan:
    assert isinstance(plan, FixedSpace | FixedTime | Logarithmic | Segments)
    return replace(plan, stage=1) if plan.stage is None else plan


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


def _measured(
    plan: Within, cuts: Sequence[Compiled], whole: Compiled
) -> Iterator[Way | TooMuch]:
    """The ways to run each of these, coarse ones first, by compiling hungry blocks.

    Finer pieces leave room for more snapshots, and make each of them larger: once that
    does not pay any more, still finer ones would only take time to compile.
    """
    cheapest = inf
    for each in cuts:
        found = list(singles(plan, each, whole, measured=True))
        yield from found
        least = min((w.price for w in found if isinstance(w, Way)), default=inf)
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
    settings = replace(settings, snapshots=at_most(d, compiled, settings.stage))
    return Way(compiled, settings, price(compiled, settings, whole))

"""The ways in which one program can keep a budget, by estimates from above.

Stages of many steps, whose tape is declared; or stages of one step, reversed without a
tape (`_direct`), with what is computed once held or, for less memory, computed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..._errors import BudgetError
from ..._plan import Plan, TreePlan
from ..._plans import Within
from ._compile import Compiled
from ._price import price
from ._sizes import bytes_per_step, fixed_bytes, snapshot_bytes, stage_bytes
from ._state import Settings

_TWICE = 1.05
"""What doing some arithmetic twice costs, against holding its results."""


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


def resolved(plan: Plan, compiled: Compiled) -> Settings:
    """The sizes that a plan chooses by the bytes of a snapshot and of a step's tape.

    Raises:
        PlanError: If the plan needs the number of steps and only a run can tell it.
    """
    n, r = compiled.program.length, max(1, bytes_per_step(compiled))
    alpha, d, t = plan.resolve(n, snapshot_bytes(compiled), r)
    return _settings(plan, alpha, d, t)


def _settings(plan: Plan, alpha: int, d: int, t: int | None) -> Settings:
    # Placing snapshots without knowing the end is as good as knowing it up to C(s+2, 2)
    # stages and nearly so beyond, where counting first would cost every step once.
    split = plan.split if isinstance(plan, TreePlan) else "binomial"
    forward = "online" if split == "binomial" else "count"
    on_host = isinstance(plan, TreePlan) and plan.offload == "host"
    return Settings(max(d, 1), alpha, split, forward, t, on_host=on_host)


def ways(plan: Within, compiled: Compiled) -> Iterator[Way | TooMuch]:
    """A tape for several steps, and none for single steps."""
    yield _pooled(plan, compiled)
    yield from singles(plan, compiled, compiled)


def singles(
    plan: Within, compiled: Compiled, whole: Compiled, *, measured: bool = False
) -> Iterator[Way | TooMuch]:
    """Stages of one step, without and with what saves memory."""
    for thrift in (False, True):
        yield _direct(plan, compiled, whole, thrift=thrift, measured=measured)


def at_most(d: int, compiled: Compiled, stage: int) -> int:
    """No more snapshots than there can be."""
    n = compiled.program.length
    return d if n is None else max(1, min(d, -(-n // stage) - 1))


def _pooled(plan: Within, compiled: Compiled) -> Way | TooMuch:
    fixed = fixed_bytes(compiled)
    least = fixed + snapshot_bytes(compiled) + compiled.tape_bytes(1)
    if plan.budget < least:
        return TooMuch(least, compiled, _settings(plan, 1, 1, None))
    rest = replace(plan, budget=plan.budget - fixed)
    settings = resolved(rest, compiled)
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
    d = at_most((plan.budget - fixed) // w, compiled, 1)
    settings = replace(_settings(plan, 1, d, None), thrift=thrift)
    found = price(compiled, settings, whole) * (_TWICE if thrift else 1)
    return Way(compiled, settings, found)


def good(found: Sequence[Way | TooMuch]) -> bool:
    """Whether there is a way that advances each step at most once."""
    return any(isinstance(w, Way) and w.price <= 1 for w in found)


def rank(found: Way | TooMuch) -> tuple[bool, float]:
    """What fits before what does not; then the cheaper, the nearer to fitting."""
    if isinstance(found, Way):
        return False, found.price
    return True, found.least


def best_of(plan: Within, found: Sequence[Way | TooMuch]) -> Way:
    """The best of some ways.

    Raises:
        BudgetError: If none fits; with the least budget that one would.
    """
    best = min(found, key=rank)
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

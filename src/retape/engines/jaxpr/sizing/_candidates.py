"""The ways in which one program can keep a budget, by estimates from above.

Stages of many steps, whose tape is declared; or stages of one step, reversed without a
tape (`_direct`), with what is computed once held or, for less memory, computed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import isqrt

from retape._errors import BudgetError
from retape.engines.jaxpr.codegen._compiled import Compiled, with_thin_tape
from retape.engines.jaxpr.control._settings import Settings
from retape.engines.jaxpr.nest._chunk_sizes import LONGEST
from retape.engines.jaxpr.sizing._byte_counts import (
    bytes_per_step,
    fixed_bytes,
    snapshot_bytes,
    stage_bytes,
)
from retape.engines.jaxpr.sizing._cost_model import (
    device_cost,
    is_counted_first,
    relative_cost,
)
from retape.engines.jaxpr.sweep._equal_parts import cut_evenly, equal_parts
from retape.plan._base import Plan

_STAGES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, LONGEST)
"""Lengths of a stage with a thin tape, of which the cheapest is taken."""
_UNKNOWN_MOST = 1024
"""Snapshots, and steps of a stage, in a run of unknown length: of a million steps each
is advanced once, of 500 million twice. Room for more is filled in vain: 700 steps of
1,000 numbers took 0.5 ms with 240 snapshots, 3 with 1,024, 67 with 4,096 (jaxlib
0.10.2, and a machine that fills 0.8 GB/s)."""
_SMALL_TAPE = 1 << 20
"""Bytes of a stage's tape, however many steps it has: filled in a millisecond."""
_TWICE = 1.05
"""Relative cost of doing some arithmetic twice instead of holding its results."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to keep a budget."""

    compiled: Compiled
    settings: Settings
    price: float
    """See `sizing/_cost_model`."""


@dataclass(frozen=True, slots=True)
class Infeasible:
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
    return _settings_of(plan, compiled, alpha, d, t)


def _settings_of(
    plan: Plan, compiled: Compiled, alpha: int, d: int, t: int | None = None
) -> Settings:
    # Placing snapshots without knowing the end is as good as knowing it up to C(s+2, 2)
    # stages and nearly so beyond, where counting first would cost every step once.
    split = plan.split
    counted = plan.loops != "device" and is_counted_first(compiled)
    forward = "count" if counted or split != "binomial" else "online"
    on_host = plan.offload == "host"
    return Settings(max(d, 1), alpha, split, forward, t, on_host=on_host)


def candidates(plan: Plan, compiled: Compiled) -> Iterator[Candidate | Infeasible]:
    """A tape for several steps, and none for single steps."""
    yield _pooled(plan, compiled)
    yield from tapeless_candidates(plan, compiled, compiled)


def tapeless_candidates(
    plan: Plan, compiled: Compiled, whole: Compiled
) -> Iterator[Candidate | Infeasible]:
    """Stages of one step, without and with what saves memory."""
    for thrift in (False, True):
        yield _direct(plan, compiled, whole, thrift=thrift)


def priced_for_device(
    found: Iterable[Candidate | Infeasible], whole: Compiled
) -> Iterator[Candidate | Infeasible]:
    """The same by what they cost an accelerator, on which a turn is some fifty kernels.

    So stages of one step are dear there, however finely the program is cut.
    """
    for each in found:
        if isinstance(each, Candidate):
            price = device_cost(each.compiled, each.settings, whole)
            yield replace(each, price=price)
        else:
            yield each


def scanned_candidates(plan: Plan, whole: Compiled) -> Iterator[Candidate]:
    """Stages that each have a snapshot (`sweep/_equal_parts`), in the fewest bytes.

    Args:
        plan: The plan.
        whole: The program, uncut.
    """
    n = whole.program.length
    if n is None or n < 2:
        return
    # Whether the program can be cut so does not depend on how long the stages are.
    uncut = equal_parts(whole, replace(_settings_of(plan, whole, 1, n), device=True))
    if not uncut:
        return
    steps = uncut.full * uncut.steps + uncut.last
    for compiled in (whole, with_thin_tape(whole)):
        w = snapshot_bytes(compiled)
        even = isqrt(n * w // max(1, bytes_per_step(compiled)))
        lengths = range(max(2, even // 2), min(steps, 2 * even) + 1)
        if not lengths:
            continue
        fulls = {k: cut_evenly(steps, k).full for k in lengths}
        least, stage = min(
            (d * w + compiled.tape_bytes(k), k) for k, d in fulls.items()
        )
        if fixed_bytes(compiled) + least <= plan.limit:
            settings = _settings_of(plan, compiled, stage, fulls[stage])
            yield Candidate(compiled, settings, device_cost(compiled, settings, whole))


def thin_candidates(plan: Plan, whole: Compiled) -> Iterator[Candidate]:
    """Stages whose tape holds the inputs of steps, if that is less than what is held.

    Those that each have a snapshot are among `scanned_candidates`.

    Args:
        plan: The plan.
        whole: The program, uncut.
    """
    compiled = with_thin_tape(whole)
    if compiled.tape_bytes(1) >= whole.tape_bytes(1):
        return
    fixed, w = fixed_bytes(compiled), snapshot_bytes(compiled)
    for stage in _STAGES:
        d = (plan.limit - fixed - compiled.tape_bytes(stage)) // w
        if d < 1 or (compiled.program.length or LONGEST) < stage:
            continue
        d = bounded_by_length(d, compiled, stage)
        settings = _settings_of(plan, compiled, stage, d)
        if not equal_parts(compiled, replace(settings, device=True)):
            yield Candidate(compiled, settings, device_cost(compiled, settings, whole))


def bounded_by_length(d: int, compiled: Compiled, stage: int) -> int:
    """No more snapshots than there can be, or than pay in a run of unknown length.

    Room for snapshots is filled with zeros at each run, whether they come or not.
    """
    n = compiled.program.length
    most = _UNKNOWN_MOST if n is None else max(1, -(-n // stage) - 1)
    return min(d, most)


def _pooled(plan: Plan, compiled: Compiled) -> Candidate | Infeasible:
    fixed = fixed_bytes(compiled)
    least = fixed + snapshot_bytes(compiled) + compiled.tape_bytes(1)
    if plan.limit < least:
        return Infeasible(least, compiled, _settings_of(plan, compiled, 1, 1))
    rest = replace(plan, memory=max(1, plan.limit - fixed))
    settings = resolved(rest, compiled)
    if compiled.program.length is None:
        longest = max(_UNKNOWN_MOST, _SMALL_TAPE // max(1, bytes_per_step(compiled)))
        stage = min(settings.stage, longest)
        room = rest.limit - compiled.tape_bytes(stage)
        d = bounded_by_length(room // snapshot_bytes(compiled), compiled, stage)
        settings = replace(settings, snapshots=max(1, d), stage=stage)
    return Candidate(compiled, settings, relative_cost(compiled, settings, compiled))


def _direct(
    plan: Plan,
    compiled: Compiled,
    whole: Compiled,
    *,
    thrift: bool = False,
) -> Candidate | Infeasible:
    w = snapshot_bytes(compiled)
    fixed = fixed_bytes(compiled, 1, thrift=thrift)
    fixed += stage_bytes(compiled, 1)
    if plan.limit < fixed + w:
        settings = replace(_settings_of(plan, compiled, 1, 1), thrift=thrift)
        return Infeasible(fixed + w, compiled, settings)
    d = bounded_by_length((plan.limit - fixed) // w, compiled, 1)
    settings = replace(_settings_of(plan, compiled, 1, d), thrift=thrift)
    found = relative_cost(compiled, settings, whole) * (_TWICE if thrift else 1)
    return Candidate(compiled, settings, found)


def is_good_enough(found: Sequence[Candidate | Infeasible], most: float = 1) -> bool:
    """Tell whether there is a way at no more than a price.

    The usual one is that of advancing each step once.
    """
    return any(isinstance(w, Candidate) and w.price <= most for w in found)


def sort_key(found: Candidate | Infeasible) -> tuple[bool, float]:
    """Sort key: what fits comes first, then the cheaper, the nearer to fitting."""
    if isinstance(found, Candidate):
        return False, found.price
    return True, found.least


def cheapest_feasible(plan: Plan, found: Sequence[Candidate | Infeasible]) -> Candidate:
    """The best of some ways.

    Raises:
        BudgetError: If none fits; with the least budget that one would.
    """
    best = min(found, key=sort_key)
    if isinstance(best, Candidate):
        return best
    raise refusal(plan, best.least)


def refusal(plan: Plan, least: int) -> BudgetError:
    """The error that names the least budget that would do."""
    return BudgetError(
        f"`within({plan.limit})` is too little for this program: its registers, "
        f"their cotangents, one snapshot and the derivative of one step take {least} "
        f"bytes, however finely its blocks are cut. Pass `retape.within({least})` or "
        "more.",
        least,
    )

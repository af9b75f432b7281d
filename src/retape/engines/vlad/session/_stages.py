"""How long the stages of compiled code are, where a plan leaves that open."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from retape._bytes import format_bytes
from retape._errors import BudgetError
from retape.engines.vlad.session._options import DEFAULT_PLAN
from retape.plan._base import Plan
from retape.plan._budget_search import within_budget

if TYPE_CHECKING:
    from retape.engines.vlad.compiler.load._machine import NativeMachine
    from retape.engines.vlad.compiler.load._native import Counted

_LEAST = {False: 4_096, True: 1_000_000}
"""Steps of a stage: of boxed code so many that they take as long as the host's work for
one (60 us); of typed code, whose tapes take a byte a step or less, more."""

_TAPE_BYTES, _MOST_TIMES = 1 << 20, 4
"""A stage of typed code may be so many times as long as that if its tape has no more
bytes: a loop over two numbers puts a third of a byte on it for each step."""

_MADE_BYTES = 16 << 20
"""Bytes that the arrays of a stage may take where nobody said how long it is: see
`runtime/state.h`. A product of matrices is one step, whatever its size."""

_STEPS_PER_WORD = {False: 4, True: 32}
"""Taping so many steps takes about as long as copying a word of a state: of boxed code,
and of typed code (0.3 ns a step; 11 ns a word of a state that goes into a stage, comes
out of it, and is moved by collections)."""

_STATES = 8
"""As many states as a run holds beside its snapshots, garbage included."""

_LARGE = 4_096
"""Words of a state below which its copies are not worth a longer stage."""


def least_stage(plan: Plan, *, typed: bool) -> int:
    """The steps of a stage: those of the plan, or at least so many if it leaves them.

    A plan that leaves them open goes by bytes, and takes twenty steps where a state has
    three numbers.

    Args:
        plan: The plan.
        typed: Whether the stage is of typed code.

    Returns:
        The steps, or 0 where their number is what the plan is about.
    """
    if typed and plan is DEFAULT_PLAN:
        return _LEAST[typed]
    if not isinstance(plan, Plan) or plan.stage is not None:
        return getattr(plan, "stage", None) or 0
    if plan.sizes_stages or plan.budget is not None or not plan.is_tree:
        return 0
    return _LEAST[typed]


def tape_bytes(plan: Plan, counted: "Counted", most: int) -> int:
    """What taping a step takes: as counted under a budget, where the steps of boxed
    code put `most` on the tape beside their arrays; else `most`."""
    if plan.budget is None:
        return most
    return math.ceil(counted.dearest) + (0 if counted.tape else most)


def within_room(
    plan: Plan, counted: "Counted", length: int, most: int, times: int
) -> Plan:
    """The plan of a budget: the snapshots and stages that fit beside the run itself.

    That holds what it held when its steps were counted and, where it is divided, some
    states: those that it goes on from and makes, their cotangents, and what walks of
    them take, while a collection copies what lives.

    Args:
        plan: The plan.
        counted: What the run took when its steps were counted.
        length: The number of steps.
        most: Bytes that a step of boxed code puts on the tape beside its arrays.
        times: As what multiple of that: a run that took more is begun again.

    Raises:
        BudgetError: If the room does not suffice; a budget that does is named.
    """
    state, held = times * counted.state, times * 8 * counted.grown
    step = times * tape_bytes(plan, counted, most)
    mean = counted.tape + counted.made + (0 if counted.tape else most)
    room = counted.room // 2 if counted.holds_others else counted.room
    in_one, own = held + math.ceil(times * mean * length), held + _STATES * state
    if in_one <= room:
        return replace(plan, memory=None, stage=length, snapshots=1)
    least = min(in_one, own + state + step)
    if room < least:
        why = (
            f"`within({plan.limit})` ({format_bytes(plan.limit)}) cannot be kept: the "
            f"run itself holds up to {own} bytes, a snapshot takes {state} and the "
            f"tape of one step {step}."
        )
        if counted.holds_others or counted.depth > 1:
            raise BudgetError(
                f"{why} With {room} bytes, derivatives within derivatives share the "
                "rest. Pass more."
            )
        raise BudgetError(f"{why} {least} bytes ({format_bytes(least)}) do.", least)
    stage, snapshots = within_budget(length, state, step, room - own)
    return replace(plan, memory=None, stage=stage, snapshots=snapshots)


def with_stage(
    plan: Plan, machine: "NativeMachine", counted: "Counted", tape: int
) -> Plan:
    """The plan, with stages of a length that is good for a run.

    Where the plan leaves it open they take at least as long as the host's work for one,
    and longer if they put little on the tape. And all take as long as the copy of the
    state that each begins with: where that grows with the run, as in a deep recursion,
    short stages would make the time quadratic.

    Args:
        plan: The plan.
        machine: The run that is to be reversed.
        counted: What it took.
        tape: Bytes that taping a step takes.
    """
    typed = counted.tape > 0.0
    room = max(1, int(_MADE_BYTES / max(counted.made, 1e-9)))
    least = least_stage(plan, typed=typed)
    if plan is DEFAULT_PLAN:
        plan = replace(plan, stage=None if typed else min(least, room))
    if least and getattr(plan, "stage", None) is None:
        if typed:
            longer = min(_MOST_TIMES * least, int(_TAPE_BYTES / counted.tape))
            least = min(max(least, longer), room)
        capsule_bytes = machine.nbytes(machine.start())
        alpha, _, _ = plan.resolve(machine.length(), capsule_bytes, tape)
        plan = plan.with_stage(max(alpha, least))
    stage = getattr(plan, "stage", None)
    if stage is None or machine.length() <= stage:
        return plan
    per_word = _STEPS_PER_WORD[typed]
    words = _words_of_states(machine, counted.grown, max(_LARGE, stage // per_word + 1))
    return replace(plan, stage=max(stage, min(per_word * words, room)))


def _words_of_states(machine: "NativeMachine", grown: int, large: int) -> int:
    """The words of the largest of four states of a run; 0 if none is large.

    Those on the way are only looked at if one may be, by how many the run held.
    """
    capsule, at = machine.start(), 0
    most = machine.nbytes(capsule) // 8
    if most + grown >= large:
        for part in (0.25, 0.5, 0.75):
            to = int(part * machine.length())
            capsule, _ = machine.advance(capsule, to - at)
            most, at = max(most, machine.nbytes(capsule) // 8), to
    return most if most >= large else 0

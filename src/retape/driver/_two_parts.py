"""A run in two parts: to its end, and back when it is asked to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import Any, Generic, TypeVar

from retape.driver._drive import Outcome, Planner, check_run, remaining_actions
from retape.driver._in_use import claimed
from retape.driver._interrupt import heeded
from retape.driver._obey import Loop
from retape.driver._step_machine import StepMachine
from retape.driver._verify import verifier_of
from retape.schedule import Reverse
from retape.schedule._action import Action
from retape.storage import SnapshotStore
from retape.storage._memory import MemoryStore
from retape.storage._tiered import name_tiers

R = TypeVar("R")


@dataclass(slots=True)
class Paused(Generic[R]):
    """A run that has come to its end.

    Attributes:
        loop: Its state, before the last stage.
        rest: The actions that are left.
        claim: What keeps other runs out of its store; its end frees the slots.
    """

    loop: Loop[Any, Any, R]
    rest: Iterable[Action]
    claim: ExitStack

    def go_on(self) -> Outcome[R]:
        """Run back."""
        loop = self.loop
        with heeded(loop):
            for action in self.rest:
                loop.obey(action)
        assert loop.cotangent is not None
        return Outcome(loop.machine.finish(loop.cotangent), loop.finished())


def run_to_the_end(
    machine: StepMachine[Any, Any],
    plan: Planner,
    store: SnapshotStore[Any] | None,
    tape_bytes: int | None,
) -> Paused[Any]:
    """Run a machine forward, and tape its last stage.

    Args:
        machine: The program.
        plan: A plan.
        store: Where snapshots wait; it ends with the process.
        tape_bytes: What taping one step takes.

    Raises:
        PlanError: If it is none, or the run is to be ended early, which loses it.
        StoreError: If a snapshot cannot be kept.
    """
    check_run(plan, False)
    kept = MemoryStore[Any]() if store is None else store
    loop: Loop[Any, Any, Any] = Loop(machine, kept, machine.start())
    loop.verifier = verifier_of(machine.program.verify, machine.fingerprint, kept)
    loop.length = machine.length()
    claim = ExitStack()
    claim.enter_context(claimed(kept))
    claim.callback(loop.release)
    try:
        name_tiers(kept, getattr(plan, "tier_names", ()))
        rest = iter(remaining_actions(loop, plan, tape_bytes, None, None))
        with heeded(loop):
            last = _obeyed_until_reverse(loop, rest)
        # The machine has the last stage; something is where the action looks for it.
        loop.working = machine.reach_end(loop.take(last.start), last.stop - last.start)
    except BaseException:
        claim.close()
        raise
    return Paused(loop, chain([last], rest), claim)


def _obeyed_until_reverse(loop: Loop[Any, Any, Any], rest: Iterator[Action]) -> Reverse:
    for action in rest:
        if isinstance(action, Reverse):
            return action
        loop.obey(action)
    raise AssertionError("every schedule reverses a stage")

"""Does a recomputed state equal the one of the first pass?

A step that reads a clock, a global random state or uninitialised memory gives another
state when it is run again, and a gradient that is silently wrong.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeAlias, TypeVar, cast, get_args

from retape._arguments import word_of
from retape._errors import DeterminismError, PlanError
from retape.driver._machine import Machine, TapingMachine, offers
from retape.storage import SnapshotStore

C = TypeVar("C")
A = TypeVar("A")
R = TypeVar("R")

Verify: TypeAlias = Literal["cheap", "full"]
"""How often recomputed states are compared with those of the first pass."""


def check_verify(verify: object) -> None:
    """Refuse what is no way to verify.

    Raises:
        PlanError: If it is none.
    """
    if verify is not None:
        word_of("verify", verify, get_args(Verify), ", or None")


_MOST = 512


@dataclass(slots=True)
class Verifier(Generic[C]):
    """Keeps fingerprints of the first pass, and compares those of every later one.

    States are looked at where the step is a multiple of `stride`. In the "full" way
    that is every step, at 16 bytes and a dictionary entry each. In the "cheap" way the
    stride doubles, and every other fingerprint goes, whenever there are 512 of them.

    Args:
        fingerprint: A digest of a capsule.
        every_step: The full way.
    """

    fingerprint: Callable[[C], bytes]
    every_step: bool
    stride: int = field(default=1, init=False)
    _seen: dict[int, bytes] = field(default_factory=dict[int, bytes], init=False)

    def next_stop(self, start: int, stop: int) -> int:
        """The next state to compare on the way from `start` to `stop`."""
        return min(stop, (start // self.stride + 1) * self.stride)

    def check(self, start: int, stop: int, capsule: C) -> None:
        """Compare the state before step `stop`, reached from step `start`."""
        if stop % self.stride:
            return
        digest = self.fingerprint(capsule)
        if self._seen.setdefault(stop, digest) != digest:
            self._complain(start, stop)
        if len(self._seen) >= _MOST and not self.every_step:
            self.stride *= 2
            kept = {k: seen for k, seen in self._seen.items() if k % self.stride == 0}
            self._seen = kept

    def _complain(self, start: int, stop: int) -> None:
        one = stop == start + 1
        where = f"step {start}" if one else f"a step in {start}..{stop - 1}"
        exact = one or self.every_step
        hint = "" if exact else ' `verify="full"` finds the exact step.'
        raise DeterminismError(
            f"{where} gave another state when it was run again (the states before step "
            f"{stop} differ), so the gradient would be wrong. Make the step a function "
            "of its state alone: no clock, no global random state, no input changed in "
            "place." + hint
        )


def verifier_of(
    verify: Verify | None,
    fingerprint: Callable[[C], bytes] | None,
    store: SnapshotStore[C],
) -> Verifier[C] | None:
    """What compares the states of a run, if that is asked for.

    Raises:
        PlanError: If it cannot be done.
    """
    check_verify(verify)
    if verify is None:
        return None
    if store.is_lossy:
        raise PlanError(
            f"`verify={verify!r}` compares states to the bit, and `store={store!r}` "
            "gives them back with rounding errors. Leave `verify` out, or use a "
            "lossless codec."
        )
    if fingerprint is None:
        raise PlanError(
            f"`verify={verify!r}` compares states, and `fingerprint` was not given. "
            "Pass a function from a capsule to the bytes of a digest."
        )
    return Verifier(fingerprint, verify == "full")


def reverse_checked(
    machine: Machine[C, A, R],
    verifier: Verifier[C],
    capsule: C,
    stage: tuple[int, int],
    cotangent: A,
) -> A:
    """Tape a stage, not the last one, look at its states, and sweep it back.

    The states on a tape are recomputed ones, too. A `TapingMachine` tapes the stage in
    parts from one state that is looked at to the next; another machine runs the stage
    once more without a tape.
    """
    start, stop = stage
    if not offers(machine, TapingMachine):
        after, step = capsule, start
        while step < stop:
            upto = verifier.next_stop(step, stop)
            after, _ = machine.advance(after, upto - step)
            verifier.check(step, upto, after)
            step = upto
        return machine.reverse(capsule, stop - start, cotangent)
    taping = cast("TapingMachine[C, A, R]", machine)
    parts: list[tuple[Any, int]] = []
    while start < stop:
        upto = verifier.next_stop(start, stop)
        tape, capsule = taping.tape(capsule, upto - start)
        verifier.check(start, upto, capsule)
        parts.append((tape, upto - start))
        start = upto
    for tape, steps in reversed(parts):
        cotangent = taping.sweep(tape, steps, cotangent)
    return cotangent

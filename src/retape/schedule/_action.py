"""The seven actions of which every schedule consists.

A schedule is a stream of these records: data, which the driver obeys, the validator
replays, the plots draw and tests compare. They speak of one *working capsule* and of
numbered slots on named tiers:

- a stream begins with the working capsule at step 0, and no slot in use;
- `Advance` moves the working capsule forward, without a tape;
- `Store` copies it into a slot, `Restore` copies a slot into it;
- `Drop` frees a slot;
- `Reverse` tapes the steps of one stage from the working capsule and sweeps them back
  at once. It uses the working capsule up: the next action but a `Drop` must be a
  `Restore` or a `Sweep`, or the end.

A slot holds a state or, in mixed schedules only, the tape of a stage:

- `Tape` moves the working capsule forward over one stage with a tape, and keeps the
  tape in a slot;
- `Sweep` sweeps a stage back from the tape in a slot; it needs no working capsule, and
  leaves none.

Stages are swept back from the last to the first without a gap. Nothing is in use at
the end. A run of no steps is the one action `Reverse(0, 0)`.

Slots are numbered from 0 upwards on each tier.

The records are named tuples because a schedule of a million steps has four million of
them; unlike plain tuples they are equal only to records of their own kind.
"""

from typing import Any, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")


def _equal(one: Any, other: object) -> bool:
    return type(one) is type(other) and tuple.__eq__(one, other)  # pyright: ignore


def _unequal(one: Any, other: object) -> bool:
    return not _equal(one, other)


def _of_its_kind(kind: type[T]) -> type[T]:
    setattr(kind, "__eq__", _equal)  # noqa: B010
    setattr(kind, "__ne__", _unequal)  # noqa: B010
    return kind


@_of_its_kind
class Advance(NamedTuple):
    """Run the steps `start`, ..., `stop - 1` without a tape."""

    start: int
    stop: int


@_of_its_kind
class Store(NamedTuple):
    """Keep the working capsule, which stands before step `step`, in a slot."""

    step: int
    slot: int
    tier: str = "memory"


@_of_its_kind
class Restore(NamedTuple):
    """Make the capsule in a slot, which stands before step `step`, the working one."""

    step: int
    slot: int
    tier: str = "memory"


@_of_its_kind
class Drop(NamedTuple):
    """Free a slot, whose capsule stands before step `step`, or whose tape begins."""

    step: int
    slot: int
    tier: str = "memory"


@_of_its_kind
class Reverse(NamedTuple):
    """Tape the steps `start`, ..., `stop - 1` and sweep them back: one stage."""

    start: int
    stop: int


@_of_its_kind
class Tape(NamedTuple):
    """Run the steps `start`, ..., `stop - 1` with a tape, and keep it in a slot."""

    start: int
    stop: int
    slot: int
    tier: str = "memory"


@_of_its_kind
class Sweep(NamedTuple):
    """Sweep the steps `start`, ..., `stop - 1` back from the tape in a slot."""

    start: int
    stop: int
    slot: int
    tier: str = "memory"


Action: TypeAlias = Advance | Store | Restore | Drop | Reverse | Tape | Sweep
"""One thing that a schedule says is to be done."""

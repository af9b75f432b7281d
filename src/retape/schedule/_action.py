"""The five actions of which every schedule consists.

A schedule is a stream of these records: data, which the driver obeys, the validator
replays, the plots draw and tests compare. They speak of one *working capsule* and of
numbered slots on named tiers:

- a stream begins with the working capsule at step 0, and no slot in use;
- `Advance` moves the working capsule forward, without a tape;
- `Store` copies it into a slot, `Restore` copies a slot into it;
- `Drop` frees a slot;
- `Reverse` tapes the steps of one stage from the working capsule and sweeps them back
  at once. It uses the working capsule up: the next action but a `Drop` must be a
  `Restore`, or the end.

Reverses run from the last step to the first without a gap. Nothing is in use at the
end. A run of no steps is the one action `Reverse(0, 0)`.

Slots are numbered from 0 upwards on each tier.
"""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Advance:
    """Run the steps `start`, ..., `stop - 1` without a tape."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Store:
    """Keep the working capsule, which stands before step `step`, in a slot."""

    step: int
    slot: int
    tier: str = "memory"


@dataclass(frozen=True, slots=True)
class Restore:
    """Make the capsule in a slot, which stands before step `step`, the working one."""

    step: int
    slot: int
    tier: str = "memory"


@dataclass(frozen=True, slots=True)
class Drop:
    """Free a slot, whose capsule stands before step `step`."""

    step: int
    slot: int
    tier: str = "memory"


@dataclass(frozen=True, slots=True)
class Reverse:
    """Tape the steps `start`, ..., `stop - 1` and sweep them back: one stage."""

    start: int
    stop: int


Action: TypeAlias = Advance | Store | Restore | Drop | Reverse

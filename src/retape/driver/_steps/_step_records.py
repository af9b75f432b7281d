"""What a `StepMachine` hands to the driver: capsules, tapes, cotangents, records.

And states and tapes that are larger than those by which a budget was shared out.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from retape._bytes import format_bytes
from retape._warn import warn


class StepCapsule(NamedTuple):
    """The state before a step.

    Attributes:
        step: The number of the step.
        state: The state.
        cost: The cost terms of the states before it, summed up.
        live: Whether the memory of the state may be the program's own.
        after: In a store that outlives its process: a digest of what the step does.
    """

    step: int
    state: Any
    cost: Any
    live: bool
    after: str = ""


class StepTape(NamedTuple):
    """A tape: its first step, and what the adjoint of each step needs."""

    first: int
    kept: list[Any]


class End(NamedTuple):
    """The end of a run: the tape of its last stage, the steps, the state, the cost."""

    tape: StepTape
    steps: int
    state: Any
    cost: Any


class LastStep(NamedTuple):
    """A step that was reversed: its number, and what its adjoint was given."""

    step: int
    kept: Any
    cotangent: Any


class Swept(NamedTuple):
    """The cotangent that the driver carries, with the run's output.

    Attributes:
        state: The state after the last step.
        cost: The sum of the cost terms of all states; `None` without them.
        cotangent: That of the state before the stages that are reversed so far.
        begun: A digest of that of the last state, where the machine signs.
        last: The last step that was reversed, where the machine signs.
    """

    state: Any
    cost: Any
    cotangent: Any
    begun: str = ""
    last: LastStep | None = None


class Recorded(NamedTuple):
    """What a record has of a cotangent.

    Attributes:
        swept: What leads to it.
        digest: Of it.
    """

    swept: Swept
    digest: str


_MORE = 1.25
"""Times as large as the first before that is told: what a step makes inside it, which
no plan counts, is as much (`docs/driver.md`)."""


@dataclass(slots=True)
class FirstSizes:
    """What a plan in bytes was made with: one state and one tape.

    Attributes:
        plan: The plan, as text.
        sizes: The bytes that were measured, of the first state and of its tape.
    """

    plan: str
    sizes: dict[str, int]
    _told: dict[str, float] = field(default_factory=dict[str, float], init=False)

    def compare(self, kind: str, k: int, nbytes: int) -> None:
        """Warn of one that is larger, again when it is twice as large as the last."""
        ratio = nbytes / max(1, self.sizes[kind])
        if ratio <= self._told.get(kind, _MORE):
            return
        self._told[kind] = 2 * ratio
        warn(
            f"the {kind} of step {k} takes {format_bytes(nbytes)}, {ratio:.3g} times "
            f"that of step 0, with which `plan={self.plan}` was made: its bytes are "
            f"not kept. Pass them divided by {ratio:.3g}, or let the first step be one "
            "of the largest."
        )

"""What a `StepMachine` hands to the driver: capsules, tapes, cotangents, records."""

from typing import Any, NamedTuple


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

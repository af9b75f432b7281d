"""Counts that a caller passes: whole numbers, as Python's own integers.

An integer of NumPy's is one too, but its arithmetic overflows, where counts of steps
and advances may be of any size; so every count becomes Python's own at the door.
"""

from retape._arguments import integer_of
from retape._errors import PlanError


def whole(name: str, value: object, least: int | None = None) -> int:
    """An integer of any kind as Python's own.

    Args:
        name: What the caller calls it, which `COUNTED` has if there is a least.
        value: What was passed.
        least: The least that it can be.

    Raises:
        PlanError: If it is no integer, or less.

    Examples:
        >>> whole("length", 5, 0)
        5
    """
    made = integer_of(value)
    if made is None:
        raise PlanError(
            f"`{name}={value!r}` is not an integer: counts of steps, stages and "
            f"snapshots are exact, and this is a `{type(value).__name__}`. Pass an "
            "`int`."
        )
    if least is not None and made < least:
        raise PlanError(
            f"`{name}={value!r}` is not valid: it counts {COUNTED[name]}, of which "
            f"there must be at least {least}. Pass as many or more."
        )
    return made


def settle(record: object, **least: int) -> None:
    """Make fields of a frozen record Python's own integers, no less than so much."""
    for name, most in least.items():
        object.__setattr__(record, name, whole(name, getattr(record, name), most))


COUNTED = {
    **dict.fromkeys(("length", "steps", "n"), "the steps of a run"),
    "stage": "the steps taped at a time",
    "snapshots": "the snapshots alive at once, the start state's included",
    "sweeps": "the times that a step may be advanced",
    "budget": "what all slots together may take",
    "state": "what a state takes",
    "tape": "what the tape of a stage takes",
    "units": "the parts that the budget is divided into",
    "capsule_bytes": "the bytes of a snapshot",
    "tape_bytes": "the bytes of the tape of a step",
}
"""What each of them counts."""

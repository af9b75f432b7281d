"""Options of plans, and their checks."""

from collections.abc import Set
from typing import Literal, TypeAlias, get_args

from retape._arguments import word_of
from retape._errors import PlanError

Kind: TypeAlias = Literal["state", "tape"]
Memory: TypeAlias = Literal["host"]
"""A memory other than the device's own."""


Loops: TypeAlias = Literal["host", "device"]
"""For whom loops are made: one that tests them at no cost, or one that has to wait."""


def check_loops(loops: object) -> Loops | None:
    """A form of loops, or `None` for that of the platform."""
    if loops is None:
        return None
    others = (
        ": 'device' for loops of known trip count, as on a GPU, 'host' for loops that "
        "end by themselves, as on the CPU, or None to go by the platform"
    )
    return word_of("loops", loops, get_args(Loops), others)


def check_offload(offload: object) -> Memory | None:
    """A memory for snapshots, or `None`."""
    if offload is None:
        return None
    others = ", or None to keep snapshots on the device"
    return word_of("offload", offload, get_args(Memory), others)


def keeps_tapes(store: Set[Kind]) -> bool:
    """Tell whether slots may hold tapes.

    Raises:
        PlanError: If `store` is no set of "state" and "tape" with "state" in it.
    """
    kinds: set[object] = set(store) if isinstance(store, Set) else set()  # pyright: ignore
    if "state" not in kinds or not kinds <= {"state", "tape"}:
        raise PlanError(
            f"`store={store!r}` is not valid: slots hold states, from which steps are "
            "run "
            'again, and may hold tapes. Pass {"state"} or {"state", "tape"}.'
        )
    return "tape" in kinds

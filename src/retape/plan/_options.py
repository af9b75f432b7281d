"""Options of plans, and their checks."""

from collections.abc import Set
from typing import Literal, TypeAlias, get_args

from retape._errors import PlanError
from retape.schedule._split import Split

Kind: TypeAlias = Literal["state", "tape"]
Memory: TypeAlias = Literal["host"]
"""A memory other than the device's own."""


Loops: TypeAlias = Literal["host", "device"]
"""For whom loops are made: one that tests them at no cost, or one that has to wait."""


def check_loops(loops: object) -> Loops | None:
    """A form of loops, or `None` for that of the platform."""
    if loops is None:
        return None
    # Compared and hashed with a plan: of what only equals the text it would not do.
    for known in get_args(Loops):
        if isinstance(loops, str) and loops == known:
            return known
    raise PlanError(
        f"`loops={loops!r}` is not a form of loops. Pass 'device' for loops of known "
        "trip count, as on a GPU, 'host' for loops that end by themselves, as on the "
        "CPU, or None to go by the platform."
    )


def check_split(split: Split) -> Split:
    """One of the ways to cut intervals."""
    if split not in get_args(Split):
        raise PlanError(
            f"`split={split!r}` is not a way to cut intervals. Pass one of "
            f"{', '.join(map(repr, get_args(Split)))}."
        )
    return split


def check_offload(offload: object) -> Memory | None:
    """A memory for snapshots, or `None`."""
    if offload is None:
        return None
    # A plan is compared and hashed: of what only equals the text it would not do.
    if not isinstance(offload, str) or offload != "host":
        raise PlanError(
            f"`offload={offload!r}` is not a place. Pass 'host', or None to keep "
            "snapshots on the device."
        )
    return "host"


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

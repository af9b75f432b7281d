"""What the user allows: bytes, or a number of snapshots and a stage length."""

import re
from dataclasses import dataclass

from ._errors import PlanError

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_PATTERN = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([KMGT]?)(i?)B?\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a run may keep.

    Attributes:
        memory: Bytes, or `None`.
        snapshots: The most snapshots, the start included, or `None`.
        stage: Steps in a stage, where snapshots are counted.
        keep_tail: Keep the values saved last until the backward asks for them.
    """

    memory: int | None
    snapshots: int | None
    stage: int
    keep_tail: bool = True


def read_bytes(memory: int | float | str) -> int:
    """A number of bytes, also from text such as `"2GB"` or `"512MiB"`.

    Raises:
        PlanError: If it is not a positive amount.

    Example:
        >>> read_bytes("1.5kB"), read_bytes("1KiB")
        (1500, 1024)
    """
    if isinstance(memory, str):
        match = _PATTERN.fullmatch(memory)
        if match is None:
            raise PlanError(
                f"`memory={memory!r}` is not an amount of memory. Write a number of "
                'bytes, or text such as "2GB" or "512MiB".'
            )
        number, unit, binary = match.groups()
        amount = float(number) * (_BINARY if binary else _UNITS)[unit.upper()]
    else:
        amount = float(memory)
    if not 1 <= amount < float("inf"):
        raise PlanError(
            f"`memory={memory!r}` is not a positive number of bytes; give at least 1."
        )
    return int(amount)

"""What the user allows: bytes, or a number of snapshots and a stage length."""

from dataclasses import dataclass

from retape._bytes import parse_bytes


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
    if isinstance(memory, float) and memory.is_integer():
        memory = int(memory)
    return parse_bytes(memory, "memory")  # pyright: ignore[reportArgumentType]

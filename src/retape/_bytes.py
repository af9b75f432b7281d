"""Amounts of memory as people write them."""

import re
from typing import cast

from retape._errors import PlanError

_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_AMOUNT = re.compile(r"\s*(\d+)(?:\.(\d+))?\s*([a-z]*)\s*", re.IGNORECASE)


def parse_bytes(amount: int | str, name: str = "budget") -> int:
    """Bytes from an integer or from a text such as "512 MiB".

    Decimal units (kB, MB, GB, TB) are powers of 1000, binary ones (KiB, MiB, GiB, TiB)
    powers of 1024; a fraction of a byte is rounded down.

    Examples:
        >>> parse_bytes("1.5 MiB")
        1572864
    """
    number = cast("float", amount)  # or a text, which is neither of the next two
    whole = hasattr(amount, "__index__") and not isinstance(amount, bool)
    if whole and number > 0:
        return int(amount)
    if isinstance(number, float) and number.is_integer() and number > 0:
        raise PlanError(
            f"`{name}={amount!r}` is a float, and bytes are whole. Write "
            f"{int(amount):_}, or a text such as {_written(int(amount))!r}."
        )
    match = _AMOUNT.fullmatch(amount) if isinstance(amount, str) else None
    unit = _UNITS.get(match[3].lower()) if match else None
    if match is None or unit is None:
        raise PlanError(
            f"`{name}={amount!r}` is not an amount of memory. Pass a number of "
            'bytes, or a text such as "512 MiB" or "6 MB".'
        )
    fraction = match[2] or ""
    total = int(match[1] + fraction) * unit // 10 ** len(fraction)
    if total == 0:
        raise PlanError(
            f"`{name}={amount!r}` is less than one byte. Pass a positive number of "
            'bytes, or a text such as "512 MiB" or "6 MB".'
        )
    return total


def _written(count: int) -> str:
    """An amount as people write it, in decimal units.

    Examples:
        >>> _written(8_000_000_000), _written(1_500_000), _written(1234)
        ('8 GB', '1.5 MB', '1234 B')
    """
    for unit, size in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size and count % (size // 10) == 0:
            return f"{count / size:g} {unit}"
    return f"{count} B"


def format_bytes(count: int) -> str:
    """A readable amount, rounded up, so that it is never less than `count`.

    Examples:
        >>> format_bytes(1572865)
        '1.6 MiB'
    """
    for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            tenths = -(-count * 10 // size)
            return f"{tenths // 10}.{tenths % 10} {unit}"
    return f"{count} B"

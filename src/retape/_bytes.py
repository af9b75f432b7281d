"""Amounts of memory as people write them."""

import re
from math import inf
from numbers import Real

from retape._arguments import integer_of
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
_DIGITS = 40
"""Of an amount of bytes, at most: Python writes no number of more than 4,300."""
_AMOUNT = re.compile(r"\s*(\d+)(?:\.(\d+))?\s*([a-z]*)\s*", re.IGNORECASE)


def parse_bytes(amount: float | str, name: str = "budget") -> int:
    """Bytes from a number or from a text such as "512 MiB".

    Decimal units (kB, MB, GB, TB) are powers of 1000, binary ones (KiB, MiB, GiB, TiB)
    powers of 1024; a fraction of a byte is rounded down.

    Examples:
        >>> parse_bytes("1.5 MiB")
        1572864
    """
    number: float | None = integer_of(amount)
    if number is None and isinstance(amount, Real) and not isinstance(amount, bool):
        number = float(amount)
    if number is not None and _is_large(number, name):
        return int(number)
    match = _AMOUNT.fullmatch(amount) if isinstance(amount, str) else None
    unit = _UNITS.get(match[3].lower()) if match else None
    if match is None or unit is None:
        raise PlanError(
            f"`{name}={amount!r}` is not an amount of memory. Pass a number of "
            'bytes, or a text such as "512 MiB" or "6 MB".'
        )
    fraction = match[2] or ""
    if len(match[1] + fraction) > _DIGITS:
        raise _too_large(name)
    total = int(match[1] + fraction) * unit // 10 ** len(fraction)
    if total == 0:
        raise PlanError(
            f"`{name}={amount!r}` is less than one byte. Pass a positive number of "
            'bytes, or a text such as "512 MiB" or "6 MB".'
        )
    return total


def _is_large(number: float, name: str) -> bool:
    """Tell whether a number is one byte or more, and no more than there can be."""
    if number >= 10**_DIGITS and number != inf:
        raise _too_large(name)
    if number < -(10**_DIGITS):
        raise _too_large(name)
    return 1 <= number < inf


def _too_large(name: str) -> PlanError:
    return PlanError(
        f"`{name}` has more than {_DIGITS} digits, and no memory has as many bytes. "
        'Pass a number of bytes, or a text such as "512 MiB" or "6 MB".'
    )


def format_bytes(count: int) -> str:
    """A readable amount, rounded up, so that it is never less than `count`.

    Examples:
        >>> format_bytes(1572865)
        '1.6 MiB'
    """
    size, unit = unit_of(count)
    if size == 1:
        return f"{count} B"
    tenths = -(-count * 10 // size)
    return f"{tenths // 10}.{tenths % 10} {unit}"


def unit_of(count: float) -> tuple[int, str]:
    """The unit in which people read an amount: its bytes, and its name.

    Examples:
        >>> unit_of(1572865), unit_of(7)
        ((1048576, 'MiB'), (1, 'B'))
    """
    units = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))
    return next((each for each in units if count >= each[0]), units[-1])

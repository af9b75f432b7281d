"""How arrays are written: a codec by its name, or within an error bound."""

# Arrays are of any type, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from retape._arguments import number_of, word_of
from retape._errors import PlanError


@dataclass(frozen=True, slots=True)
class Codec:
    """How arrays are written; make one by its name, or by `bounded`.

    Attributes:
        kind: "lossless", "float32", "float16", "bfloat16" or "bounded".
        error: The largest error of "bounded", relative to the largest number of an
            array, or absolute.
        is_absolute: Which of the two.
    """

    kind: str
    error: float = 0.0
    is_absolute: bool = False

    CASTS: ClassVar[dict[str, str]] = {"float32": "f4", "float16": "f2"}

    @property
    def is_lossy(self) -> bool:
        """Whether numbers come back only near what they were."""
        return self.kind != "lossless"

    @property
    def has_fixed_size(self) -> bool:
        """Whether the bytes depend on types and shapes alone."""
        return self.kind in ("bfloat16", *self.CASTS)

    def __str__(self) -> str:
        if self.kind != "bounded":
            return repr(self.kind)
        how = "absolute" if self.is_absolute else "relative"
        return f"bounded({how}={self.error:g})"


def named(codec: str | Codec) -> Codec:
    """A codec by its name.

    Raises:
        PlanError: If there is none of this name.
    """
    if isinstance(codec, Codec):
        return codec
    known = sorted({"lossless", *Codec.CASTS, "bfloat16"})
    bound = ", or `retape.storage.bounded(relative=1e-4)` for an error bound"
    return Codec(word_of("codec", codec, known, bound))


def bounded(*, relative: float | None = None, absolute: float | None = None) -> Codec:
    """A codec that writes floating-point numbers within an error bound.

    Numbers become multiples of twice the bound, and their differences along each axis
    are packed. Each array that is written is read back and compared, so the bound is
    kept, or the array is written without loss (where it has infinite numbers).

    Args:
        relative: The largest error, relative to the largest number of an array; or
        absolute: the largest error itself.

    Raises:
        PlanError: If both bounds are given or none, or one is not positive.

    Examples:
        >>> from retape.storage import bounded
        >>> print(bounded(relative=1e-4))
        bounded(relative=0.0001)
    """
    given = relative if absolute is None else absolute
    if (relative is None) == (absolute is None) or not 0 < number_of(given) < inf:
        raise PlanError(
            f"`bounded(relative={relative!r}, absolute={absolute!r})` is not valid: "
            "pass one of them, a positive number."
        )
    return Codec("bounded", number_of(given), relative is None)

"""Units, the input of the dynamic programme; descents are its output."""

from typing import NamedTuple


class Unit(NamedTuple):
    """Time and bytes of running and reversing one unit, given the state before it.

    Attributes:
        advance: Cost of running it for the state after it alone.
        both: Cost of running it for its tape and the state after it.
        tape: Cost of running it for its tape alone.
        tape_bytes: Bytes of its tape that are not in the state before.
        more_bytes: Bytes of its tape that are not in the tape of the unit before.
        hold_bytes: Bytes of the state before it that are not in that tape either.
        advance_peak: Most bytes while it is run without a tape.
        tape_peak: Most bytes while it is run with its tape.
        reverse_peak: Most bytes while it is reversed, its tape included.
        cotangent: Bytes of the cotangent of the state after it.
        lingering: Bytes that the unit before saved at its end: the program's own run
            holds them while this one begins.
        own_peak: Most bytes while the program itself runs it, with its tape, if it was
            seen what the program holds; else 0.
        own_advance_peak: The same without its tape.
    """

    advance: float
    both: float
    tape: float
    tape_bytes: int
    more_bytes: int
    hold_bytes: int
    advance_peak: int
    tape_peak: int
    reverse_peak: int
    cotangent: int
    lingering: int = 0
    own_peak: int = 0
    own_advance_peak: int = 0

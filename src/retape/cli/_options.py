"""The options of the subcommands that take a plan and the length of a run."""

import argparse

from retape._bytes import parse_bytes
from retape._errors import PlanError
from retape.plan._parse import MAKERS

PLAN_HELP = (
    "the call that makes a plan, such as 'fixed_space(snapshots=20)' or "
    f"'within(\"6 MB\")', of one of {', '.join(MAKERS)}"
)


def add_plan_and_length(parser: argparse.ArgumentParser) -> None:
    """A plan, the length of a run, and what is to be known of its bytes."""
    parser.add_argument("plan", metavar="PLAN", help=PLAN_HELP)
    parser.add_argument(
        "--steps",
        type=length,
        required=True,
        metavar="N",
        help="the length of the run, such as 1000 or 1e6",
    )
    parser.add_argument(
        "--capsule", metavar="BYTES", help='the bytes of one snapshot, such as "8 MB"'
    )
    parser.add_argument(
        "--tape",
        metavar="BYTES",
        help='the bytes of the tape of a step, such as "1 MB"',
    )


def length(text: str) -> int:
    """A whole number; `1e6` is one.

    Examples:
        >>> length("1e6"), length("12_000"), length("1.5e3")
        (1000000, 12000, 1500)
    """
    mantissa, _, power = text.strip().lower().partition("e")
    digits, _, fraction = mantissa.partition(".")
    try:
        shift = int(power or 0) - len(fraction)
        if 0 <= shift <= _MOST_ZEROS:
            return int(digits + fraction) * 10**shift
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(
        f"{text!r} is not a whole number, such as 1000 or 1e6"
    )


_MOST_ZEROS = 99
"""Behind a number: 1e999999999 would fill the memory."""


def count(text: str) -> int:
    """A whole number that is at least 1."""
    number = length(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is too small: pass at least 1")
    return number


def sizes_of(options: argparse.Namespace) -> tuple[int | None, int | None]:
    """The bytes of a capsule and of a taped step: both or neither.

    Raises:
        PlanError: If one is given alone, or they or the length cannot be.
    """
    if options.steps < 0:
        raise PlanError(f"`--steps {options.steps}` is not valid. Pass a length.")
    capsule, tape = (
        None if text is None else parse_bytes(text, name)
        for name, text in (("capsule", options.capsule), ("tape", options.tape))
    )
    if (capsule is None) != (tape is None):
        given, lacking = ("capsule", "tape") if tape is None else ("tape", "capsule")
        raise PlanError(
            f"`--{given}` goes with `--{lacking}`: snapshots and the tape of a stage "
            "share the memory. Pass the bytes of both."
        )
    return capsule, tape

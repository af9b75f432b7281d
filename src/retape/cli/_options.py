"""The options that name a plan, shared by the subcommands that take one.

A plan is written in full, `--plan fixed-space:snapshots=5`, or by short options, which
are the same in other words: `--snapshots 5`. Both are read by `retape.plan._parse`.
"""

import argparse

from retape._bytes import parse_bytes
from retape._errors import PlanError
from retape.plan._base import Plan
from retape.plan._parse import kind_named, make_plan, read_options, whole_number
from retape.plan._registry import by_name

_SHORT = {
    "snapshots": ("fixed-space", "snapshots"),
    "sweeps": ("fixed-time", "sweeps"),
    "within": ("within", "budget"),
    "memory": ("tiers", "memory"),
    "levels": ("tiers", "levels"),
}
"""Short options that name a kind of plan, and the option of it that they give."""
_FLAGS = ("logarithmic", "segments")
_MORE = ("stage", "split", "disk")
"""Short options that go with any kind that has them."""


def add_plan_options(
    parser: argparse.ArgumentParser, *, required: bool = True, default: str = ""
) -> None:
    """Options for one of the plans."""
    kind = parser.add_mutually_exclusive_group(required=required)
    kind.add_argument(
        "--plan",
        metavar="PLAN",
        help="the plan in full, a kind with its options, such as "
        "fixed-space:snapshots=5,stage=10 or within:6 MB; kinds: "
        f"{', '.join(by_name())}{default}",
    )
    kind.add_argument(
        "--snapshots",
        metavar="D",
        help="keep at most D snapshots at a time (fixed space)",
    )
    kind.add_argument(
        "--sweeps",
        metavar="T",
        help="run each step forward at most T times (fixed time)",
    )
    kind.add_argument(
        "--logarithmic",
        action="store_true",
        help="keep about as many snapshots as each step is run forward; both grow "
        "with the logarithm of the length",
    )
    kind.add_argument(
        "--segments",
        action="store_true",
        help="run each step forward twice, once to keep a snapshot for each segment",
    )
    kind.add_argument(
        "--within",
        metavar="BYTES",
        help='keep snapshots and tape within these bytes, such as "512 MiB"',
    )
    kind.add_argument(
        "--memory",
        metavar="M",
        help="keep M snapshots in memory and the others on disk (--disk); M may be "
        "bytes, which the snapshots share with the tape",
    )
    kind.add_argument(
        "--levels",
        metavar="TIERS",
        help="use any number of tiers, each as name/snapshots/write/read, where the "
        "costs of transfers are in steps: device/3+host/20/1/1+disk/50 GB/8/8",
    )
    parser.add_argument(
        "--disk", metavar="M", help="keep M snapshots, or bytes, on disk (--memory)"
    )
    parser.add_argument(
        "--tapes",
        action="store_true",
        help="let a slot hold the tape of a step in place of a snapshot",
    )
    parser.add_argument(
        "--stage", metavar="ALPHA", help="tape ALPHA steps at a time, such as 100"
    )
    parser.add_argument(
        "--split",
        metavar="RULE",
        help="cut intervals by this rule: binomial, bisection or treeverse",
    )


def add_length_options(parser: argparse.ArgumentParser) -> None:
    """The length of a run, and what is to be known of its bytes."""
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
    """A whole number; `1e6` is one."""
    number = whole_number(text)
    if number is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a whole number, such as 1000 or 1e6"
        )
    return number


def count(text: str) -> int:
    """A whole number that is at least 1."""
    number = length(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is too small: pass at least 1")
    return number


def plan_of(options: argparse.Namespace) -> Plan | None:
    """The plan that the options name; `None` if they name none.

    Raises:
        PlanError: If there is no such plan.
    """
    more = {n: getattr(options, n) for n in _MORE if getattr(options, n) is not None}
    if options.tapes:
        more["store"] = "state+tape"
    if options.plan is not None:
        kind, given = read_options(options.plan)
    else:
        named = _named(options)
        if named is None:
            if more:
                raise PlanError(
                    f"`--{next(iter(more))}` is an option of a plan, and no plan is "
                    "named. Pass `--plan`, or a short option such as `--snapshots`."
                )
            return None
        kind, given = kind_named(named[0]), named[1]
        if "memory" in given:
            more.setdefault("disk", "0")
    if "disk" in more and "disk" not in kind.options:
        raise PlanError("`--disk` goes with `--memory`, which may be 0. Pass both.")
    twice = given.keys() & more.keys()
    if twice:
        raise PlanError(f"`{twice.pop()}` of the plan is given twice. Leave one out.")
    return make_plan(kind, {**given, **more})


def _named(options: argparse.Namespace) -> tuple[str, dict[str, str]] | None:
    for short, (kind, option) in _SHORT.items():
        if getattr(options, short) is not None:
            return kind, {option: getattr(options, short)}
    return next(((flag, {}) for flag in _FLAGS if getattr(options, flag)), None)


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

"""The options that name a plan, shared by the subcommands that take one."""

import argparse
from typing import Any

from .._bytes import parse_bytes
from .._errors import PlanError
from .._hosted_plans import tiers
from .._plan import Plan
from .._plans import fixed_space, fixed_time, logarithmic, segments, within


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    """Options for one of the plans, the length and the bytes."""
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--snapshots", type=int, metavar="D", help="fixed space")
    kind.add_argument("--sweeps", type=int, metavar="T", help="fixed time")
    kind.add_argument("--logarithmic", action="store_true", help="as many as sweeps")
    kind.add_argument("--segments", action="store_true", help="a single sweep")
    kind.add_argument("--within", metavar="BYTES", help='a budget, as in "512 MiB"')
    kind.add_argument("--memory", metavar="M", help="two tiers: snapshots, or bytes")
    parser.add_argument("--disk", metavar="M", help="with --memory: the same on disk")
    parser.add_argument("--tapes", action="store_true", help="slots may hold tapes")
    parser.add_argument("--steps", type=int, required=True, metavar="N")
    parser.add_argument("--stage", type=int, metavar="ALPHA")
    parser.add_argument("--split", choices=["binomial", "bisection", "treeverse"])
    parser.add_argument("--capsule", metavar="BYTES", help="one snapshot")
    parser.add_argument("--tape", metavar="BYTES", help="the tape of one step")


def plan_of(options: argparse.Namespace) -> Plan:
    """The plan that the options name."""
    chosen: dict[str, Any] = {}
    for name in ("stage", "split"):
        if getattr(options, name) is not None:
            chosen[name] = getattr(options, name)
    if options.tapes:
        chosen["store"] = {"state", "tape"}
    if options.memory is not None:
        return tiers(
            memory=_amount(options.memory), disk=_amount(options.disk or "0"), **chosen
        )
    if options.disk is not None:
        raise PlanError("`--disk` goes with `--memory`, which may be 0. Pass both.")
    if options.snapshots is not None:
        return fixed_space(snapshots=options.snapshots, **chosen)
    if options.sweeps is not None:
        return fixed_time(sweeps=options.sweeps, **chosen)
    if options.within is not None:
        return within(options.within, **chosen)
    return segments(**chosen) if options.segments else logarithmic(**chosen)


def _amount(text: str) -> int | str:
    """A number of snapshots, or bytes."""
    return int(text) if text.isdecimal() else text


def sizes_of(options: argparse.Namespace) -> tuple[int | None, int | None]:
    """The bytes of a capsule and of a taped step."""
    if options.steps < 0:
        raise PlanError(f"`--steps {options.steps}` cannot be. Pass a length.")
    capsule, tape = options.capsule, options.tape
    return (
        None if capsule is None else parse_bytes(capsule, "capsule"),
        None if tape is None else parse_bytes(tape, "tape"),
    )

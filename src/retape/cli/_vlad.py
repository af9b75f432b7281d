"""`retape vlad`: run a VLAD program, see its compiled forms, or talk to a prompt."""

import contextlib
import os
import signal
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Any

from .. import _plans
from .._errors import LanguageError, PlanError, RetapeError
from .._plan import Plan

_PLANS: dict[str, tuple[Callable[..., Plan], str | None]] = {
    "logarithmic": (_plans.logarithmic, None),
    "fixed-space": (_plans.fixed_space, "snapshots"),
    "fixed-time": (_plans.fixed_time, "sweeps"),
    "segments": (_plans.segments, None),
    "within": (_plans.within, "budget"),
}
_NUMBERS = ("snapshots", "sweeps", "stage")
_WORDS = ("split", "tree", "budget")

DESCRIPTION = "Run a program of the VLAD language; without FILE, talk to a prompt."


def add(commands: Any) -> None:
    """Add the parser of `retape vlad`."""
    parser = commands.add_parser(
        "vlad", help="run a VLAD program", description=DESCRIPTION
    )
    parser.set_defaults(run=main)
    parser.add_argument("file", nargs="?", metavar="FILE", help="a program's file")
    parser.add_argument(
        "--engine",
        choices=("interpreter", "hybrid", "compiled"),
        help="which implementation runs it (default: compiled; at the prompt, the "
        "interpreter)",
    )
    parser.add_argument(
        "--plan",
        metavar="PLAN",
        help="how checkpoint-*j divides a run: logarithmic, fixed-space, fixed-time, "
        "segments or within, with options, as in "
        "fixed-space:snapshots=5,stage=10000,split=bisection,tree=binary "
        "(default: logarithmic:stage=100000)",
    )
    parser.add_argument(
        "--report", action="store_true", help="tell what checkpointed runs did"
    )
    parser.add_argument(
        "--store",
        metavar="DIR",
        help="keep the states of checkpointed runs there; after a crash the same "
        "command goes on with them",
    )
    parser.add_argument(
        "--emit",
        choices=("cps", "c"),
        help="print the program in a form of the compiler instead of running it",
    )


def main(args: Namespace) -> int:
    """Do what the arguments ask; the exit status."""
    try:
        return _main(args)
    except LanguageError as error:
        print(error, file=sys.stderr)
        return 1
    except RetapeError as error:
        print(f"retape vlad: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read the output has gone; so do we
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _main(args: Namespace) -> int:
    from .. import vlad

    plan = None if args.plan is None else parse_plan(args.plan)
    if args.file is None:
        if args.emit is not None:
            raise PlanError("`--emit` prints a program's form; name the FILE too")
        if args.store is not None:
            raise PlanError("`--store` keeps the runs of a program; name the FILE too")
        vlad.repl(engine=args.engine or "interpreter", plan=plan)
        return 0
    path = _as_path(args.file)
    if args.emit is not None:
        print(vlad.emit(path, args.emit), end="")
        return 0
    with _interruptible():
        result = vlad.run(
            path,
            engine=args.engine or "compiled",
            plan=plan,
            stdin=sys.stdin,
            stdout=sys.stdout,
            report=args.report,
            store=args.store,
        )
    if args.report:
        _tell(result)
    return 0


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end the process at once: Python does not see it in compiled code."""
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _as_path(name: str) -> Any:
    from pathlib import Path

    return Path(name)


def _tell(result: Any) -> None:
    """The steps of a run, and what its checkpointed parts did."""
    for index, steps in enumerate(result.steps, 1):
        print(f"expression {index}: {steps} steps", file=sys.stderr)
    for report in result.reports:
        print(report, file=sys.stderr)


def parse_plan(text: str) -> Plan:
    """A plan from its text.

    Example:
        >>> import retape
        >>> plan = parse_plan("fixed-space:snapshots=5,stage=1000")
        >>> plan == retape.fixed_space(snapshots=5, stage=1000)
        True
    """
    kind, _, rest = text.partition(":")
    if kind not in _PLANS:
        raise PlanError(f"`{kind}` is no plan; write one of {', '.join(_PLANS)}")
    make, needed = _PLANS[kind]
    options: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        name, equals, value = part.partition("=")
        if not equals or name not in _NUMBERS + _WORDS:
            raise PlanError(
                f"`{part}` is no option of a plan; write `name=value` with one of "
                f"{', '.join(_NUMBERS + _WORDS)}"
            )
        options[name] = _number(name, value) if name in _NUMBERS else value
    if needed is not None and needed not in options:
        raise PlanError(
            f"the plan `{kind}` needs `{needed}`; write `{kind}:{needed}=...`"
        )
    if needed == "budget":
        return make(options.pop("budget"), **options)
    return make(**options)


def _number(name: str, value: str) -> int:
    try:
        return int(value.replace("_", ""))
    except ValueError:
        raise PlanError(f"`{name}={value}` is no whole number; write digits") from None

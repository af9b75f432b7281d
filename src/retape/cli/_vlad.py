"""`retape vlad`: run a VLAD program, see its compiled forms, or talk to a prompt."""

import contextlib
import signal
import sys
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from retape._errors import LanguageError, PlanError, RetapeError
from retape.cli._options import PLAN_HELP
from retape.plan._parse import parse_plan

DESCRIPTION = "Run a program of the VLAD language; without FILE, talk to a prompt."


def add(commands: Any) -> None:
    """Add the parser of `retape vlad`."""
    parser = commands.add_parser(
        "vlad",
        help="run a VLAD program",
        description=DESCRIPTION,
        examples=(
            "retape vlad program.vlad",
            "echo 1000 53 3 | retape vlad examples/vlad/adaptive_grid.vlad --report",
        ),
    )
    parser.set_defaults(run=main)
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="the file of the program"
    )
    parser.add_argument(
        "--engine",
        choices=("interpreter", "hybrid", "compiled"),
        help="run it by this implementation (default: compiled; at the prompt, the "
        "interpreter)",
    )
    parser.add_argument(
        "--plan",
        metavar="PLAN",
        help=f"{PLAN_HELP} (default: logarithmic(stage=100000))",
    )
    parser.add_argument(
        "--report", action="store_true", help="print what checkpointed runs did"
    )
    parser.add_argument(
        "--store",
        metavar="DIR",
        help="keep the states of checkpointed runs there; after a crash the same "
        "command goes on with them",
    )
    parser.add_argument(
        "--emit",
        choices=("cps", "typed", "c"),
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


def _main(args: Namespace) -> int:
    from retape import vlad
    from retape.engines.vlad.session._repl import repl
    from retape.engines.vlad.session._run import emit

    plan = None if args.plan is None else parse_plan(args.plan)
    if args.file is None:
        if args.emit is not None:
            raise PlanError("`--emit` prints a program's form; name the FILE too")
        if args.store is not None:
            raise PlanError("`--store` keeps the runs of a program; name the FILE too")
        repl(engine=args.engine or "interpreter", plan=plan)
        return 0
    path = _as_path(args.file)
    if args.emit is not None:
        form = emit(path, args.emit)
        # A name may have letters that the terminal's encoding lacks.
        encoding = sys.stdout.encoding or "utf-8"
        form = form.encode(encoding, "backslashreplace").decode(encoding)
        print(form, end="")
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

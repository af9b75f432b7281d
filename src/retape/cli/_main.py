"""Arguments and exit codes; each subcommand has a module of its own.

A subcommand's module offers `add(commands)`, which adds its parser and sets `run` to a
function from the parsed options to an exit code. It is listed in `SUBCOMMANDS` and
imported when the command starts, so it imports what is heavy inside `run`.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence

from .._errors import RetapeError

SUBCOMMANDS = ("_plan", "_plot", "_vlad")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command `retape`.

    Returns:
        0 if all is well, 1 for an error of this library, which is printed; wrong usage
        ends with 2.
    """
    parser = argparse.ArgumentParser(
        prog="retape", description="Reverse-mode gradients in sublinear memory."
    )
    commands = parser.add_subparsers(required=True, metavar="command")
    for name in SUBCOMMANDS:
        importlib.import_module(f"retape.cli.{name}").add(commands)
    options = parser.parse_args(arguments)
    try:
        return options.run(options)
    except RetapeError as error:
        print(f"retape: {error}", file=sys.stderr)
        return 1

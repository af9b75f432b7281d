"""Arguments and exit codes; each subcommand has a module of its own.

A subcommand's module offers `add(commands)`, which adds its parser and sets `run` to a
function from the parsed options to an exit code. It is listed in `SUBCOMMANDS` and
imported when the command starts, so it imports what is heavy inside `run`.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import re
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, NoReturn

from retape._errors import RetapeError

SUBCOMMANDS = (
    "_plan", "_plot", "_show", "_fits", "_vlad", "_doctor"
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """The command `retape`.

    Returns:
        0 if all is well, 1 for an error of this library, which is printed, 130 after
        Ctrl-C, 141 where the reader of the output has gone; wrong usage ends with 2.
    """
    if sys.stdout is None:  # closed by the caller, who wants the exit code alone
        sys.stdout = open(os.devnull, "w")
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.run is None:
        parser.print_help()
        return 0
    try:
        status = options.run(options)
        sys.stdout.flush()
        return status
    except RetapeError as error:
        print(f"retape: {_in_our_words(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("retape: interrupted.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        _forget_output()
        return 141
    except OSError as error:
        if error.filename is not None:  # not the output, but a file of its own
            raise
        _forget_output()
        reason = f"The output cannot be written: {error.strerror}."
        print(f"retape: {reason} Write it elsewhere.", file=sys.stderr)
        return 1


def _in_our_words(text: str) -> str:
    """An error of the library, whose arguments are options here."""
    options = {
        "capsule_bytes": "--capsule", "tape_bytes": "--tape", "memory": "--memory",
        "device": "--device", 'memory="24 GiB"': "--memory '24 GiB'",
        'device="h100"': "--device h100",
    }  # fmt: skip
    for argument, option in options.items():
        text = text.replace(f"`{argument}`", f"`{option}`")
    return text


def _forget_output() -> None:
    # Python would complain once more when it closes the stream at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="retape",
        description="Reverse-mode gradients in sublinear memory.",
        examples=(
            "retape plan 'fixed_space(snapshots=20)' --steps 1e6",
            "retape plot 'fixed_space(snapshots=3)' --steps 20",
            "retape doctor",
        ),
    )
    parser.add_argument("--version", action="version", version=f"retape {_version()}")
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(metavar="command")
    for name in SUBCOMMANDS:
        importlib.import_module(f"retape.cli.{name}").add(commands)
    return parser


def _version() -> str:
    from retape import __version__

    return __version__


WIDTH = 76
"""Characters in a line of a description, as `argparse` wraps an option's help."""


class CommandParser(argparse.ArgumentParser):
    """A parser whose help ends with examples, and whose errors say what was meant.

    Every parser of the command is one, subcommands' included.

    Args:
        examples: Whole command lines that work as they stand.
        description: What the command does; it is wrapped.
        options: As for `argparse.ArgumentParser`.
    """

    def __init__(
        self, *, examples: Sequence[str] = (), description: str = "", **options: Any
    ) -> None:
        lines = "".join(f"\n  {example}" for example in examples)
        super().__init__(
            description=textwrap.fill(description, WIDTH),
            epilog=f"examples:{lines}" if examples else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **options,
        )
        self.examples = tuple(examples)

    def parse_known_args(self, *arguments: Any, **options: Any) -> Any:
        # A subcommand refuses its own options: the command does not know them.
        found, unknown = super().parse_known_args(*arguments, **options)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        meant = self._meant(message)
        hint = f" Did you mean `{meant}`?" if meant else ""
        self.exit(2, f"{self.prog}: {message}.{hint} Try `{self.prog} --help`.\n")

    def _meant(self, message: str) -> str | None:
        """The command, value or option that is nearest to what was typed."""
        choice = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message)
        option = re.search(r"unrecognized arguments: (-\S+)", message)
        if choice is not None:
            typed, known = choice[1], re.findall(r"[\w-]+", choice[2])
        elif option is not None:
            typed = option[1].partition("=")[0]
            known = re.findall(r"--[\w-]+", self.format_help())
        else:
            return None
        return next(iter(difflib.get_close_matches(typed, known, 1)), None)

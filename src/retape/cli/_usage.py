"""How the command speaks: help with examples, and wrong usage in one line.

Every parser of the command is a `CommandParser`, subcommands' included.
"""

import argparse
import difflib
import re
import textwrap
from collections.abc import Sequence
from typing import Any, NoReturn

WIDTH = 76
"""Characters in a line of a description, as `argparse` wraps an option's help."""


class CommandParser(argparse.ArgumentParser):
    """A parser whose help ends with examples, and whose errors say what was meant.

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

"""`retape show`: a JAX function before and after each pass of the compiler."""

import argparse
import json
import sys
from contextlib import redirect_stdout
from typing import Any

from retape.cli._arguments import CommandError, add_function, argument_of, function_of

DESCRIPTION = (
    "Show what each pass of the compiler makes of the gradient of a JAX function. The "
    "gradient is taken with respect to the first ARGUMENT."
)

SAME = "(as before)"
"""Stands in the text of `retape.jax.show` for the output of a pass that did nothing."""


def add(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "show",
        help="show what the compiler makes of a JAX function",
        description=DESCRIPTION,
        examples=(
            "retape show jax.numpy:sum f32[100,3]",
            "retape show jax.numpy:sin 0.5 --only linearize",
        ),
    )
    add_function(parser, "+")
    parser.add_argument(
        "--only", metavar="PASS", help="show the output of this pass alone"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the passes as an object of JSON"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the program after each pass, or after one."""
    with redirect_stdout(sys.stderr):  # what the program prints is none of the passes
        text = _shown(function_of(options.function), options.arguments)
    parts = _parts(text)
    if options.only is not None and options.only not in parts:
        raise CommandError(
            f"`--only {options.only}` is not a pass. Pass one of these: "
            f"{', '.join(parts)}."
        )
    if options.json:
        only = options.only
        print(json.dumps(parts if only is None else {only: parts[only]}, indent=2))
    else:
        print(text if options.only is None else parts[options.only])
    return 0


def _shown(function: Any, given: list[str]) -> str:
    arguments = [argument_of(text) for text in given]
    if arguments and type(arguments[0]) is int:
        raise CommandError(
            f"`{arguments[0]}` is a whole number, and the gradient is taken with "
            f"respect to the first argument. Write `{float(arguments[0])}`."
        )
    from retape.jax import show

    return show(function, *arguments)


def _parts(text: str) -> dict[str, str]:
    """The output of each pass."""
    parts: dict[str, str] = {}
    last = ""
    for part in text.removeprefix("== ").split("\n== "):
        title, _, body = part.partition("\n")
        # A pass that had nothing to do hands on what it was given.
        last = parts[title] = last if body == SAME else body
    return parts

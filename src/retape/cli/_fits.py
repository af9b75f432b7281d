"""`retape fits`: whether the gradient of a JAX function fits a device."""

import argparse
import os
from typing import Any

from retape.cli._arguments import CommandError, add_function, argument_of, function_of

DESCRIPTION = (
    "Say what the gradient of a JAX function takes of a device, plainly and by each "
    "way that Retape has, and which of them fits. Nothing is run, and the device need "
    "not be here. The gradient is taken with respect to the first ARGUMENT; without "
    "arguments FUNCTION is called, and returns the function and its arguments."
)


def add(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "fits",
        help="say whether a gradient fits a device, and how",
        description=DESCRIPTION,
        examples=(
            "retape fits model.py:loss f32[1024,1024] f32[64,1024] --memory '2 GB'",
            "retape fits model.py:problem --device h100",
        ),
    )
    add_function(parser, "*")
    parser.add_argument(
        "--device", help="h100, h200, a100, l4 or v5e; by default this machine's own"
    )
    parser.add_argument(
        "--memory",
        metavar="BYTES",
        help="a number of bytes, or a text such as '24 GiB'; by default three quarters "
        "of the device's, which is what JAX takes of a GPU, and all of a TPU's",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the table of what each way takes."""
    # XLA warns of each candidate that does not fit, which the table says better.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    function = function_of(options.function)
    arguments = [argument_of(text) for text in options.arguments]
    if not arguments:
        function, *arguments = _problem(options.function, function())
    from retape.jax import advise

    print(advise(function, *arguments, memory=options.memory, device=options.device))
    return 0


def _problem(name: str, given: Any) -> Any:
    if isinstance(given, tuple) and len(given) > 1 and callable(given[0]):
        return given
    raise CommandError(
        f"`{name}` was called without arguments and returned {type(given).__name__}. "
        "Let it return the function and its arguments, as in `return loss, weights, "
        "batch`, or write the types of the arguments behind it: f32[100,3]."
    )

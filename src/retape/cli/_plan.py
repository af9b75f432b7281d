"""`retape plan`: what a plan would do, without a program."""

import argparse
from typing import Any

from ._options import add_plan_options, plan_of, sizes_of


def add(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("plan", help="predict what a plan will do")
    add_plan_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print a prediction."""
    print(plan_of(options).predict(options.steps, *sizes_of(options)))
    return 0

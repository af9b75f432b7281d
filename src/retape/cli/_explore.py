"""`retape explore`: the schedule explorer, as a page in a file."""

import argparse
from pathlib import Path
from typing import Any

from retape._errors import StoreError
from retape.cli._options import count


def add(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "explore", help="write a page on which schedules can be looked at"
    )
    parser.add_argument("--out", metavar="FILE", default="explorer.html")
    parser.add_argument("--steps", type=count, default=40, help="the longest run")
    parser.add_argument("--snapshots", type=count, default=6, help="the most of them")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the page."""
    from retape.viz import explorer

    page = explorer(options.steps, options.snapshots)
    try:
        Path(options.out).write_text(page, encoding="utf-8")
    except OSError as error:
        raise StoreError(
            f"`--out {options.out}` cannot be written: {error.strerror or error}. Pass "
            "another place."
        ) from error
    print(f"wrote {options.out}")
    return 0

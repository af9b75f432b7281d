"""`retape explore`: the schedule explorer, as a page in a file."""

import argparse
from pathlib import Path
from typing import Any

from retape._errors import StoreError
from retape.cli._options import count


def add(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "explore",
        help="write a page on which schedules can be explored",
        description="Write a page of HTML on which schedules of all lengths can be "
        "explored in a browser, step by step.",
        examples=("retape explore --out explorer.html --steps 30",),
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        default="explorer.html",
        help="write the page to FILE, also if it exists (default: %(default)s)",
    )
    parser.add_argument(
        "--steps",
        type=count,
        default=40,
        metavar="N",
        help="offer runs of up to N steps (default: %(default)s)",
    )
    parser.add_argument(
        "--snapshots",
        type=count,
        default=6,
        metavar="D",
        help="offer up to D snapshots (default: %(default)s)",
    )
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

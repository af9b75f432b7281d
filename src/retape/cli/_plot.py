"""`retape plot`: a schedule as text, as JSON, or as a figure in a file."""

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from retape._errors import PlanError, StoreError
from retape.cli._options import add_plan_and_length, count, sizes_of
from retape.plan._parse import parse_plan
from retape.schedule._offline import Offline

_WIDTH = 100
"""Characters in a row where the output is not a terminal."""
_MOST = 200_000
"""Stages in a drawing; each is a row that is worked out, whether it is shown or not."""


def add(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "plot",
        help="draw the schedule of a plan",
        description="Draw which steps a plan runs, tapes and reverses, one row for "
        "each sweep, as text or as a figure.",
        examples=(
            "retape plot 'fixed_space(snapshots=3)' --steps 20",
            "retape plot 'fixed_time(sweeps=3)' --steps 30 --json",
        ),
    )
    add_plan_and_length(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--out", metavar="FILE", help="write a figure: .png, .svg or .pdf"
    )
    form.add_argument("--json", action="store_true", help="print the actions as JSON")
    parser.add_argument(
        "--width",
        type=count,
        metavar="N",
        help="draw N characters in a row (default: as many as the terminal has)",
    )
    parser.add_argument(
        "--rows",
        type=count,
        default=60,
        metavar="N",
        help="draw at most N rows of text (default: %(default)s)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print a drawing or actions, or write a figure."""
    plan, sizes = parse_plan(options.plan), sizes_of(options)
    schedule = plan.schedule(options.steps, *sizes)
    counts = schedule.counts()
    if counts.reverses > _MOST:
        raise PlanError(
            f"a drawing of {counts.reverses} stages is too large to look at; {_MOST} "
            "is the most. Pass fewer `--steps`, or a plan with a longer `stage`."
        )
    if options.json:
        actions = [{"action": type(a).__name__, **a._asdict()} for a in schedule]
        print(json.dumps({"steps": options.steps, "actions": actions}))
        return 0
    if options.out is not None:
        title = f"{options.steps} steps, {counts.peak_snapshots} snapshots"
        _write(schedule, title, options.out)
        print(f"wrote {options.out}")
        return 0
    from retape.viz import draw_text

    width = options.width or _terminal_width()
    print(draw_text(schedule, width=width, rows=options.rows))
    return 0


def _write(schedule: Offline, title: str, out: str) -> None:
    from retape.viz._schedule import draw_figure

    figure = draw_figure(schedule, title=title)
    try:
        if not Path(out).suffix:
            raise ValueError("it has no ending")
        figure.savefig(out)
    except OSError as error:
        raise StoreError(
            f"`--out {out}` cannot be written: {error.strerror or error}. Pass "
            "another place."
        ) from error
    except ValueError as error:
        raise PlanError(
            f"`--out {out}` is not a figure that can be drawn: {error}. Pass a name "
            "that ends in .png, .svg or .pdf."
        ) from error


def _terminal_width() -> int:
    if not sys.stdout.isatty():
        return _WIDTH
    return max(1, shutil.get_terminal_size((_WIDTH, 24)).columns)

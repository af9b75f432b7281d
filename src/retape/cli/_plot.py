"""`retape plot`: a schedule as text, or as a figure in a file."""

import argparse
from typing import Any

from ._options import add_plan_options, plan_of, sizes_of


def add(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("plot", help="draw the schedule of a plan")
    add_plan_options(parser)
    parser.add_argument("--out", metavar="FILE", help="a figure: .png, .svg or .pdf")
    parser.add_argument("--width", type=int, default=100, help="characters in a row")
    parser.add_argument("--rows", type=int, default=60, help="most rows of text")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print a drawing, or write a figure."""
    schedule = plan_of(options).schedule(options.steps, *sizes_of(options))
    if options.out is None:
        from ..viz import draw_text

        print(draw_text(schedule, width=options.width, rows=options.rows))
        return 0
    from ..viz._figure import draw_figure

    title = f"{options.steps} steps, {schedule.counts().peak_snapshots} snapshots"
    draw_figure(schedule, title=title).savefig(options.out)
    print(f"wrote {options.out}")
    return 0

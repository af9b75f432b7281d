"""`retape plan`: what a plan would do, without a program."""

import argparse
import json
from typing import Any

from retape.cli._options import add_plan_and_length, sizes_of
from retape.plan._base import Plan
from retape.plan._parse import parse_plan
from retape.plan._prediction import Prediction


def add(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "plan",
        help="predict what a plan will do",
        description="Predict how many steps a plan will run again, and what it will "
        "keep. No program is needed.",
        examples=(
            "retape plan 'fixed_space(snapshots=20)' --steps 1e6",
            "retape plan 'within(\"64 MB\")' --steps 5000 --capsule 1MB --tape 2MB",
        ),
    )
    add_plan_and_length(parser)
    parser.add_argument(
        "--json", action="store_true", help="print the prediction as JSON"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print a prediction."""
    plan, sizes = parse_plan(options.plan), sizes_of(options)
    prediction = plan.predict(options.steps, *sizes)
    if options.json:
        print(json.dumps(as_object(plan, options.steps, prediction), indent=2))
    else:
        print(prediction)
    return 0


def as_object(plan: Plan, steps: int, prediction: Prediction) -> dict[str, Any]:
    """A prediction as JSON has it; bytes and costs that are not known are null."""
    return {
        "plan": repr(plan),
        "steps": steps,
        "stage": prediction.alpha,
        "stages": prediction.reverses,
        "snapshots": prediction.peak_snapshots,
        "snapshots_on_disk": prediction.peak_disk,
        "sweeps": prediction.t,
        "advances": prediction.advances,
        "taped": prediction.taped,
        "stores": prediction.stores,
        "restores": prediction.restores,
        "kept_tapes": prediction.kept_tapes,
        "peak_bytes": prediction.peak_bytes,
        "disk_bytes": prediction.disk_bytes,
        "host_bytes": prediction.host_bytes,
        "cost": prediction.cost,
        "tiers": {
            name: {
                "stores": use.stores,
                "restores": use.restores,
                "snapshots": use.peak,
                "bytes": prediction.bytes_on(name),
            }
            for name, use in prediction.tiers.items()
        },
    }

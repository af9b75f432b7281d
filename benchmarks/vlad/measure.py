"""One measurement of the example, in a process of its own so that memory is its own.

    python -m benchmarks.vlad.measure [VARIANT N L [STAGE]] [--exact]

VARIANT is `primal`, `reverse` or `checkpoint`; the plan is the default one where no
STAGE is named. Prints one line of JSON; with nothing
named that of a small one.
"""

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import retape
import retape.driver
from retape.engines.vlad.language._diagnostics import Source
from retape.engines.vlad.language._program import Session
from retape.engines.vlad.session._engines import CompiledEngine, Setting
from retape.engines.vlad.session._options import DEFAULT_PLAN

EXAMPLE = Path(__file__).parents[2] / "examples" / "vlad" / "adaptive_grid.vlad"
CALLS = {
    "primal": "(cons (f x l phi) '())",
    "reverse": "(*j (lambda (x) (f x l phi)) x 1)",
    "checkpoint": "(checkpoint-*j (lambda (x) (f x l phi)) x 1)",
}


def program_text(variant: str) -> str:
    """The example's definitions, and one call whose result is not printed."""
    definitions = EXAMPLE.read_text().partition("(let* ((n (read-real))")[0]
    reads = "(let* ((n (read-real)) (l (read-real)) (phi (read-real)) (x (iota n)))"
    return f"{definitions}\n{reads} {CALLS[variant]})"


def measure(
    variant: str,
    n: int,
    length: int,
    stage: int,
    exact: bool,
) -> dict[str, object]:
    """Run once: seconds of processor and clock, bytes, steps, what the driver did."""
    numbers = iter([float(n), float(length), 3.0])
    reports: list[Any] = []
    plan = retape.logarithmic(stage=stage) if stage else DEFAULT_PLAN
    setting = Setting(plan, lambda: next(numbers, None), print, reports.append)
    program = Session().add(Source("example", program_text(variant)))
    engine = CompiledEngine(program, setting)
    engine.native.exact(exact)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, wall = time.process_time(), time.perf_counter()
    (value, gradient), steps = engine.evaluate(0)
    seconds, wall = time.process_time() - began, time.perf_counter() - wall
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident
    engine.native.exact(False)
    census = engine.native.call("census")
    worst = 0.0
    for k in range(n, 0, -1) if gradient != () else ():
        worst = max(worst, abs(gradient[0] / k - 1))
        gradient = gradient[1]
    return {
        "l": length,
        "seconds": seconds,
        "wall": wall,
        "value": value,
        "gradient_error": worst,
        "live": census.t,
        "mapped": census.u,
        "resident_growth": grown * 1024,
        "steps": reports[0].length if reports else steps,
        "advances": reports[0].advances if reports else 0,
        "snapshots": reports[0].peak_snapshots if reports else 0,
    }


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--exact"]
    words = words or ["checkpoint", "100", "20"]
    variant_, n_, l_ = words[0], int(words[1]), int(words[2])
    stage_ = int(words[3]) if len(words) > 3 else 0
    print(json.dumps(measure(variant_, n_, l_, stage_, "--exact" in sys.argv)))

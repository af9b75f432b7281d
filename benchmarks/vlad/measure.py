"""One measurement of the example, in a process of its own so that memory is its own.

    python -m benchmarks.vlad.measure VARIANT N L [--exact]

VARIANT is `primal`, `reverse`, `checkpoint`, or `python`; the plan is the default one.
It prints one line of JSON.
"""

import json
import sys
import time
from typing import Any

import numpy as np
from benchmarks.harness import EXAMPLES
from benchmarks.native.functions import adaptive_grid

from retape import native
from retape.engines.vlad.language._diagnostics import Source
from retape.engines.vlad.language._program import Session
from retape.engines.vlad.session._engines import CompiledEngine, Setting
from retape.engines.vlad.session._options import DEFAULT_PLAN

EXAMPLE = EXAMPLES / "vlad" / "adaptive_grid.vlad"
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


def measure(variant: str, n: int, length: int, exact: bool) -> dict[str, object]:
    """Run once: seconds of the processor, bytes, steps."""
    numbers = iter([float(n), float(length), 3.0])
    reports: list[Any] = []
    read = lambda: next(numbers, None)  # noqa: E731
    setting = Setting(DEFAULT_PLAN, read, print, reports.append)
    program = Session().add(Source("example", program_text(variant)))
    engine = CompiledEngine(program, setting)
    engine.native.note_peaks(exact=exact)
    began = time.process_time()
    (value, gradient), steps = engine.evaluate(0)
    seconds = time.process_time() - began
    took = engine.native.measured()
    worst = 0.0
    for k in range(n, 0, -1) if gradient != () else ():
        worst = max(worst, abs(gradient[0] / k - 1))
        gradient = gradient[1]
    return {
        "l": length,
        "seconds": seconds,
        "value": value,
        "gradient_error": worst,
        "live": took.live,
        "mapped": took.mapped,
        "steps": reports[0].length if reports else steps,
    }


def measure_python(n: int, length: int) -> dict[str, object]:
    """The example as a Python function on arrays: seconds and what the runtime took."""
    x = np.arange(float(n), 0.0, -1.0)
    gradient = native.grad(adaptive_grid)
    gradient(x, 10, 3.0)  # compiled
    began = time.process_time()
    found = gradient(x, length, 3.0)
    seconds = time.process_time() - began
    (made,) = gradient._made.values()
    runtime: Any = made.engine
    return {
        "l": length,
        "seconds": seconds,
        "mapped": runtime.native.measured().mapped,
        "gradient_error": float(np.max(np.abs(found / x - 1.0))),
    }


def main(variant: str, n: str, length: str, *exact: str) -> None:
    """Print one measurement."""
    found = (
        measure_python(int(n), int(length))
        if variant == "python"
        else measure(variant, int(n), int(length), exact=bool(exact))
    )
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The example as a Python function, compiled: one measurement, in a process of its own.

    python -m benchmarks.vlad.in_python [N L]

Prints one line of JSON, as `measure.py` does; with nothing named that of a small one.
"""

import json
import sys
import time
from typing import Any

import numpy as np
from benchmarks.native.functions import adaptive_grid

from retape import native


def measure(n: int, length: int) -> dict[str, float]:
    """Seconds of the primal and of the gradient, and what the runtime took."""
    x = np.arange(float(n), 0.0, -1.0)
    primal, gradient = native.function(adaptive_grid), native.grad(adaptive_grid)
    for f in (primal, gradient):  # compiled
        f(x, 10, 3.0)
    seconds: list[float] = []
    found: Any = None
    for f in (primal, gradient):
        began = time.process_time()
        found = f(x, length, 3.0)
        seconds.append(time.process_time() - began)
    (made,) = gradient._made.values()
    runtime: Any = made.engine
    return {
        "l": length,
        "primal": seconds[0],
        "seconds": seconds[1],
        "mapped": runtime.native.call("census").u,
        "gradient_error": float(np.max(np.abs(found / x - 1.0))),
    }


if __name__ == "__main__":
    n_, l_ = (int(word) for word in sys.argv[1:3] or ("100", "20"))
    print(json.dumps(measure(n_, l_)))

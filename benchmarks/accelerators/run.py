"""Gradients on an accelerator: time and peak memory, beside what rivals take.

    python -m benchmarks.accelerators.run [--quick] [WORKLOAD ...]

Each workload has a process of its own. There its small form is held against JAX's own
reverse mode, or the host's form, on this device; then all candidates are compiled, and
run by turns of all workloads, one at a time, in the order of the bytes that they take:
so the device's own counter of the peak, which never falls, is that of the latest. Where
a device has no such counter (a CPU), the compiler's figure of temporaries stands in for
it, and the table says so. Without a GPU sizes are small in any case.
"""

from __future__ import annotations

import fcntl
import json
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from benchmarks.accelerators.workloads import (
    ALL,
    Workload,
    by_hand,
    equinox,
    peak_bytes,
    scanned,
)
from benchmarks.harness import Table, asked, in_a_process, in_turn
from benchmarks.jax.candidates import Compiled, compiled

import retape
import retape.jax

ROUNDS = 3
BY_HAND = "scans by hand"
COLUMNS = ("workload", "gradient", "ms", "peak MB", "temporaries MB", "counted by")


def main() -> None:
    """Check, run all candidates, and print the table."""
    given = asked(__doc__, ALL, {"names": ["bptt"]}, one="", small=False)
    warnings.simplefilter("ignore")
    small = given.small or given.quick or jax.default_backend() == "cpu"
    if given.one:
        print(json.dumps({"rows": [*rows(given.names[0], given.one, small)]}))
        return
    print(f"{jax.devices()[0].device_kind}, JAX {jax.__version__}")
    table = Table(*COLUMNS)
    with tempfile.NamedTemporaryFile() as turn, ThreadPoolExecutor() as pool:
        words = "--one", turn.name, *(("--small",) if small else ())
        run = lambda name: alone(name, *words)  # noqa: E731
        for name, found in zip(given.names, pool.map(run, given.names), strict=True):
            for row in found.get("rows", [["all", found.get("why_not"), *[None] * 3]]):
                table.row(name, *row)


# Without it the first process would take most of the device's memory for itself.
alone = partial(
    in_a_process, "benchmarks.accelerators.run", XLA_PYTHON_CLIENT_PREALLOCATE="false"
)


def rows(name: str, turn: str, small: bool) -> Iterator[list[Any]]:
    """Rows of all candidates of a workload; they run while the file is locked."""
    if not is_right(name):
        yield ["all", "a gradient is wrong on this device: nothing is timed"] + [""] * 3
        return
    workload, made = ALL[name](small), dict[str, Compiled]()
    for candidate, make in candidates(workload):
        budget = made[BY_HAND].nbytes if BY_HAND in made else None
        try:
            if (gradient := make(budget)) is not None:
                made[candidate] = compiled(gradient, workload.point)
        except Exception as error:
            why = f"{type(error).__name__}: {str(error).splitlines()[0][:60]}"
            yield [candidate, why, "", "", ""]
    with Path(turn).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for candidate in sorted(made, key=lambda each: made[each].nbytes):
            each = made[candidate]
            try:
                call = {"": partial(each, workload.point)}
                taken = in_turn(call, ROUNDS, time.perf_counter)[""].median
            except Exception as error:  # the device has too little memory for it
                yield [candidate, type(error).__name__, "", "", ""]
                continue
            peak, by = peak_bytes(), "device"
            if peak is None:
                peak, by = each.nbytes, "compiler"
            yield [candidate, 1e3 * taken, peak / 1e6, each.nbytes / 1e6, by]


def candidates(workload: Workload) -> list[tuple[str, Callable[[int | None], Any]]]:
    """Gradients by name, made from the bytes of the scans by hand; `None` is none."""
    program, steps = workload.program, workload.steps
    ours = partial(retape.jax.grad, program(scanned))
    # Snapshots like those of the scans by hand, in number: two square roots.
    count = 32 if steps is None else 2 * round(steps**0.5)
    equal = retape.fixed_space(snapshots=max(2, count))
    plain = program(lambda *given: scanned(*given))  # Fig. 8 with a bound
    found: list[tuple[str, Callable[[int | None], Any]]] = [
        ("plain", lambda _: steps and jax.grad(plain) or None),
        (BY_HAND, lambda _: steps and jax.grad(program(by_hand)) or None),
        ("Equinox", lambda _: jax.grad(program(equinox(32)))),
        ("Retape", lambda _: ours()),
        ("Retape, within scans' bytes", lambda b: b and ours(plan=retape.within(b))),
    ]
    for form in ("device", "host"):
        name = f"Retape, {count} snapshots, {form}'s form"
        found.append((name, lambda _, f=form: ours(plan=equal, loops=f)))
    return found


def is_right(name: str) -> bool:
    """The small form of a workload, in the form that this device gets."""
    workload = ALL[name](True)
    program = workload.program(scanned)
    plan = retape.fixed_space(snapshots=3, stage=3)
    found = retape.jax.grad(program, plan=plan, loops="device")(workload.point)
    if workload.steps is not None and name not in ("paper", "humanoid"):
        expected = jax.grad(program)(workload.point)
    else:
        expected = retape.jax.grad(program, plan=plan, loops="host")(workload.point)
    scale = float(np.max(np.abs(expected))) or 1.0
    return bool(np.max(np.abs(np.asarray(found) - np.asarray(expected))) < 1e-3 * scale)


if __name__ == "__main__":
    main()

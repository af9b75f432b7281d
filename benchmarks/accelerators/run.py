"""Gradients on an accelerator: time and peak memory, beside what rivals take.

Each workload has a process of its own. There its small form is held against JAX's own
reverse mode, or the host's form, on this device; then all candidates are compiled, and
run by turns of all workloads, one at a time, in the order of the bytes that they take:
so the device's own counter of the peak, which never falls, is that of the latest. Where
a device has no such counter (a CPU), the compiler's figure of temporaries stands in for
it, and the table says so.

Run: `make bench-accelerator`, or `python -m benchmarks.accelerators.run [--small]
[--only WORKLOAD] [--out FILE]`. Without a GPU sizes are small in any case.
"""

from __future__ import annotations

import argparse
import datetime
import fcntl
import json
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import Table, in_a_process

ROUNDS = 3
PYTORCH = "PyTorch engine"
BY_HAND = "scans by hand"


def main() -> None:
    """Check, run all candidates, print the table and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="small sizes, for a CPU")
    parser.add_argument("--only", action="append", help="a workload's name")
    parser.add_argument("--out", default="accelerators.json", help="the file to write")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.check:
        print(json.dumps(device() | {"torch": checked_torch()}))
    elif given.one:
        print(json.dumps(measured(*given.one, small=given.small)))
    else:
        compare(given.only, Path(given.out), small=given.small)


def compare(only: list[str] | None, out: Path, *, small: bool) -> None:
    """Run all workloads, print the table and write the file."""
    from benchmarks.accelerators.workloads import ALL

    report = alone("--check")
    if not report.get("torch"):
        raise SystemExit(f"PyTorch's gradient on this device: {report}")
    small = small or report["platform"] == "cpu"
    report |= {"date": datetime.date.today().isoformat(), "small": small, "rows": []}
    print(f"{report['device']}, JAX {report['jax']}, {report['date']}")
    table = Table("workload", "gradient", "ms", "peak MB", "temporaries MB", "counted")
    words = ["--small"] if small else []
    with tempfile.NamedTemporaryFile() as turn, ThreadPoolExecutor() as pool:
        run = lambda name: alone("--one", name, turn.name, *words)  # noqa: E731
        for name, found in zip(only or ALL, pool.map(run, only or ALL), strict=True):
            for row in found.get("rows", [{"candidate": "all", **found}]):
                report["rows"].append({"workload": name, **row})
                table.row(name, *cells(row))
    out.write_text(json.dumps(report, indent=1))
    print(f"written to {out}")


def cells(row: dict[str, Any]) -> tuple[Any, ...]:
    """A row of the table."""
    if "why_not" in row:
        return row["candidate"], row["why_not"], None, None, None
    peak = row["peak"] and row["peak"] / 1e6
    temporaries = row["temporaries"] and row["temporaries"] / 1e6
    return row["candidate"], 1e3 * row["seconds"], peak, temporaries, row["peak_by"]


# Without it the first process would take most of the device's memory for itself.
alone = partial(
    in_a_process, "benchmarks.accelerators.run", XLA_PYTHON_CLIENT_PREALLOCATE="false"
)


def device() -> dict[str, Any]:
    """What this was run on."""
    import jax

    return {
        "device": jax.devices()[0].device_kind,
        "platform": jax.default_backend(),
        "jax": jax.__version__,
    }


# One workload ---------------------------------------------------------------------


def measured(name: str, turn: str, *, small: bool) -> dict[str, Any]:
    """Rows of all candidates of a workload; they run while the file is locked."""
    from benchmarks.accelerators.workloads import ALL

    if not checked(name):
        return {"why_not": "a gradient is wrong on this device: nothing is timed"}
    workload = ALL[name](small)
    made, rows = compiled_candidates(workload)
    ordered = sorted(made, key=lambda each: made[each].nbytes)
    with Path(turn).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for each in ordered:
            try:
                figures = timed(made[each], workload.point)
            except Exception as error:  # the device has too little memory for it
                figures = {"why_not": type(error).__name__}
            rows.append({"candidate": each, **figures})
        if name in ("bptt", "transformer"):
            rows.append({"candidate": "PyTorch, per block", **with_torch(name, small)})
    return {"rows": rows}


def compiled_candidates(workload: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Those that compile, and rows of those that do not."""
    from benchmarks.jax.candidates import compiled

    made: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    for name, make in candidates(workload):
        budget = made[BY_HAND].nbytes if BY_HAND in made else None
        gradient = make(budget)
        if gradient is None:
            continue
        try:
            made[name] = compiled(gradient, workload.point)
        except Exception as error:
            why = f"{type(error).__name__}: {str(error).splitlines()[0][:60]}"
            rows.append({"candidate": name, "why_not": why})
    return made, rows


def timed(made: Any, point: Any) -> dict[str, Any]:
    """The median of some calls, and the most bytes that the device held."""
    import jax

    made(point)
    taken = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        made(point)
        taken.append(time.perf_counter() - began)
    peak = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    return {
        "seconds": sorted(taken)[ROUNDS // 2],
        "peak": peak,
        "temporaries": made.nbytes,
        "peak_by": "compiler" if peak is None else "device",
    }


def with_torch(name: str, small: bool) -> dict[str, Any]:
    """The rival of PyTorch."""
    from benchmarks.accelerators.with_torch import measured_torch

    return {**measured_torch(name, small=small, rounds=ROUNDS), "temporaries": None}


Made = Callable[[int | None], Any]


def candidates(workload: Any) -> list[tuple[str, Made]]:
    """Gradients by name, made from the bytes of the scans by hand; `None` is none."""
    import jax
    from benchmarks.accelerators.workloads import by_hand, equinox, scanned

    import retape
    import retape.jax

    program, known = workload.program, workload.steps is not None
    ours = partial(retape.jax.grad, program(scanned))
    # Snapshots like those of the scans by hand, in number: two square roots.
    count = 2 * round(workload.steps**0.5) if known else 32
    equal = retape.fixed_space(snapshots=max(2, count))
    plain = program(lambda *given: scanned(*given))  # Fig. 8 with a bound
    found: list[tuple[str, Made]] = [
        ("plain", lambda _: jax.grad(plain) if known else None),
        (BY_HAND, lambda _: jax.grad(program(by_hand)) if known else None),
        ("Equinox", lambda _: jax.grad(program(equinox(32)))),
        ("Retape", lambda _: ours()),
        ("Retape, within scans' bytes", lambda b: b and ours(plan=retape.within(b))),
    ]
    for form in ("device", "host"):
        name = f"Retape, {count} snapshots, {form}'s form"
        found.append((name, lambda _, f=form: ours(plan=equal, loops=f)))
    return found


# Right on this device -------------------------------------------------------------


def checked(name: str) -> bool:
    """The small form of a workload, in the form that this device gets."""
    import jax
    import numpy as np
    from benchmarks.accelerators.workloads import ALL, scanned

    import retape
    import retape.jax

    workload = ALL[name](True)
    program = workload.program(scanned)
    plan = retape.fixed_space(snapshots=3, stage=3)
    found = retape.jax.grad(program, plan=plan, loops="device")(workload.point)
    expected = retape.jax.grad(program, plan=plan, loops="host")(workload.point)
    if workload.steps is not None and name not in ("paper", "humanoid"):
        expected = jax.grad(program)(workload.point)
    scale = float(np.max(np.abs(expected))) or 1.0
    close = np.max(np.abs(np.asarray(found) - np.asarray(expected))) < 1e-3 * scale
    return bool(close)


def checked_torch() -> bool:
    """The PyTorch engine, on a GPU if PyTorch sees one."""
    import torch

    import retape.torch

    where = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.linspace(0.1, 1, 100, device=where, requires_grad=True)

    def run(x: Any) -> Any:
        for _ in range(50):
            x = torch.sin(x) + 0.1 * x
        return (x * x).sum()

    (expected,) = torch.autograd.grad(run(x), x)
    with retape.torch.recompute(snapshots=4, stage=4):
        loss = run(x)
    (found,) = torch.autograd.grad(loss, x)
    return torch.allclose(found, expected)


if __name__ == "__main__":
    main()

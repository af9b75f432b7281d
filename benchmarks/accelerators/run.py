"""Gradients on an accelerator: time, peak memory and waits, beside what rivals take.

First the small form of every workload is held against JAX's own reverse mode or the
host's form, on this device, and the PyTorch engine against plain autograd. Then every
candidate is run in a process of its own, so that the device's own counter of the peak
is that candidate's. Where a device has no such counter (a CPU), the compiler's figure
of temporaries stands in for it, and the table says so.

Run: `make bench-accelerator`, or `python -m benchmarks.accelerators.run [--small]
[--only WORKLOAD] [--out FILE]`. Without a GPU sizes are small in any case.
"""

from __future__ import annotations

import argparse
import datetime
import json
import warnings
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import Table, in_a_process

CANDIDATES = (
    "plain",
    "scans by hand",
    "Equinox",
    "Retape",
    "Retape, host's form",
    "PyTorch, per block",
)
ROUNDS = 5
TORCH = "PyTorch engine"


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
    if given.one:
        print(json.dumps(measured(*given.one, small=given.small)))
    elif given.check:
        print(json.dumps(all_checked(given.only)))
    else:
        compare(given.only, Path(given.out), small=given.small)


def compare(only: list[str] | None, out: Path, *, small: bool) -> None:
    """Check, run all candidates, print the table and write the file."""
    report = alone("--check", *(w for name in only or () for w in ("--only", name)))
    if "why_not" in report:
        raise SystemExit(f"the checks {report['why_not']}")
    for name, right in report["right"].items():
        print(f"{name:24} {'right' if right else 'WRONG'}", flush=True)
    if not all(report["right"].values()):
        raise SystemExit("a gradient is wrong on this device: nothing is timed")
    small = small or report["platform"] == "cpu"
    report |= {"date": datetime.date.today().isoformat(), "small": small, "rows": []}
    print(f"\n{report['device']}, JAX {report['jax']}, {report['date']}")
    table = Table("workload", "gradient", "ms", "peak MB", "counted by", "waits")
    for name in report["right"]:
        for candidate in CANDIDATES if name != TORCH else ():
            words = ["--one", name, candidate, *(["--small"] if small else [])]
            row = {"workload": name, "candidate": candidate, **alone(*words)}
            report["rows"].append(row)
            table.row(*cells(row))
    out.write_text(json.dumps(report, indent=1))
    print(f"written to {out}")


def cells(row: dict[str, Any]) -> tuple[Any, ...]:
    """A row of the table."""
    head = row["workload"], row["candidate"]
    if "why_not" in row:
        return *head, row["why_not"], None, None, None
    peak = None if row["peak"] is None else row["peak"] / 1e6
    return *head, 1e3 * row["seconds"], peak, row["peak_by"], row["waits"]


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


# One candidate --------------------------------------------------------------------


def measured(name: str, candidate: str, *, small: bool) -> dict[str, Any]:
    """Time, peak and waits of one candidate."""
    if candidate.startswith("PyTorch"):
        from benchmarks.accelerators.with_torch import measured_torch

        return measured_torch(name, small=small, rounds=ROUNDS)
    import jax
    from benchmarks.accelerators.workloads import ALL
    from benchmarks.jax.candidates import compiled, timed

    import retape.jax

    workload = ALL[name](small)
    gradient = gradient_of(workload, candidate)
    if gradient is None:
        return {"why_not": "does not apply: the length is unknown"}
    made = compiled(gradient, workload.point)
    times = timed({"": made}, (workload.point,), ROUNDS)[""]
    stats = jax.devices()[0].memory_stats() or {}
    peak = stats.get("peak_bytes_in_use")
    waits = None
    if small:  # by interpretation, which takes its time
        waits = retape.jax.count_waits(gradient, workload.point).waits
    return {
        "seconds": times.median,
        "peak": peak if peak is not None else made.nbytes,
        "peak_by": "device" if peak is not None else "compiler",
        "waits": waits,
    }


def gradient_of(workload: Any, candidate: str) -> Any:
    """The gradient by one candidate; `None` if it cannot be taken that way."""
    import jax
    from benchmarks.accelerators.workloads import by_hand, equinox, scanned

    import retape
    import retape.jax

    if candidate.startswith("Retape"):
        # Snapshots like those of the scans by hand, in number: two square roots.
        count = 32 if workload.steps is None else 2 * round(workload.steps**0.5)
        loops = "host" if "host" in candidate else "device"
        plan = retape.fixed_space(snapshots=max(2, count))
        return retape.jax.grad(workload.program(scanned), plan=plan, loops=loops)
    loops = {"plain": scanned, "scans by hand": by_hand, "Equinox": equinox(32)}
    if workload.steps is None and candidate != "Equinox":
        return None
    if candidate == "plain" and workload.name.startswith("Fig. 8"):
        return jax.grad(workload.program(lambda *given: scanned(*given)))
    return jax.grad(workload.program(loops[candidate]))


# Right on this device -------------------------------------------------------------


def all_checked(only: list[str] | None) -> dict[str, Any]:
    """Which gradients are right here, and on what device."""
    from benchmarks.accelerators.workloads import ALL

    right = {name: checked(name) for name in only or ALL}
    return {**device(), "right": right | {TORCH: checked_torch()}}


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

"""Gradients on an accelerator: time, peak memory and waits, beside what rivals take.

First the small form of every workload is held against JAX's own reverse mode or the
host's form, on this device, and the PyTorch engine against plain autograd. Then every
candidate is run in a process of its own, so that the device's own counter of the peak
is that candidate's. Where a device has no such counter (a CPU), the compiler's figure
of temporaries stands in for it, and the table says so.

Run: `make bench-accelerator`, or `python benchmarks/accelerators/run.py [--small]
[--only WORKLOAD] [--out FILE]`. Without a GPU sizes are small in any case.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

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
    report = in_a_process(
        "--check", *(w for name in only or () for w in ("--only", name))
    )
    if "why_not" in report:
        raise SystemExit(f"the checks {report['why_not']}")
    for name, right in report["right"].items():
        print(f"{name:24} {'right' if right else 'WRONG'}", flush=True)
    if not all(report["right"].values()):
        raise SystemExit("a gradient is wrong on this device: nothing is timed")
    small = small or report["platform"] == "cpu"
    report |= {"date": datetime.date.today().isoformat(), "small": small, "rows": []}
    print(f"\n{report['device']}, JAX {report['jax']}, {report['date']}")
    print(f"{'':44}{'time':>12}{'peak MB':>12}  {'counted by':10}{'waits':>9}")
    for name in report["right"]:
        for candidate in CANDIDATES if name != TORCH else ():
            words = ["--one", name, candidate, *(["--small"] if small else [])]
            row = {"workload": name, "candidate": candidate, **in_a_process(*words)}
            report["rows"].append(row)
            print(line(row), flush=True)
    out.write_text(json.dumps(report, indent=1))
    print(f"written to {out}")


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    head = f"{row['workload']:22}{row['candidate']:22}"
    if "why_not" in row:
        return f"{head}{row['why_not']:>12}"
    waits = "" if row["waits"] is None else str(row["waits"])
    peak = "" if row["peak"] is None else f"{row['peak'] / 1e6:.3f}"
    took = f"{1e3 * row['seconds']:.2f} ms"
    return f"{head}{took:>12}{peak:>12}  {row['peak_by']:10}{waits:>9}"


def in_a_process(*words: str) -> dict[str, Any]:
    """What this file prints when called with these words, where nothing else ran."""
    # Without it the first process would take most of the device's memory for itself.
    env = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    command = [sys.executable, __file__, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        return {"why_not": f"failed: {_reason(done.stderr)[:70]}"}
    return json.loads(done.stdout.strip().splitlines()[-1])


def _reason(text: str) -> str:
    """The line of a traceback that says why; JAX adds lines about itself."""
    lines = text.strip().splitlines() or ["no message"]
    named = [each for each in lines if re.match(r"[\w.]*(Error|Exception)\b", each)]
    return (named or lines)[-1]


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
        from with_torch import measured_torch

        return measured_torch(name, small=small, rounds=ROUNDS)
    import jax
    from workloads import ALL

    import retape.jax

    workload = ALL[name](small)
    gradient = gradient_of(workload, candidate)
    if gradient is None:
        return {"why_not": "does not apply: the length is unknown"}
    compiled = jax.jit(gradient).lower(workload.point).compile()
    jax.block_until_ready(compiled(workload.point))
    times: list[float] = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        jax.block_until_ready(compiled(workload.point))
        times.append(time.perf_counter() - began)
    stats = jax.devices()[0].memory_stats() or {}
    analysis: Any = compiled.memory_analysis()
    peak = stats.get("peak_bytes_in_use")
    waits = None
    if small:  # by interpretation, which takes its time
        waits = retape.jax.count_waits(gradient, workload.point).waits
    return {
        "seconds": statistics.median(times),
        "peak": peak if peak is not None else analysis.temp_size_in_bytes,
        "peak_by": "device" if peak is not None else "compiler",
        "waits": waits,
    }


def gradient_of(workload: Any, candidate: str) -> Any:
    """The gradient by one candidate; `None` if it cannot be taken that way."""
    import jax
    from workloads import by_hand, equinox, scanned

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
    from workloads import ALL

    right = {name: checked(name) for name in only or ALL}
    return {**device(), "right": right | {TORCH: checked_torch()}}


def checked(name: str) -> bool:
    """The small form of a workload, in the form that this device gets."""
    import jax
    import numpy as np
    from workloads import ALL, scanned

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

"""Gradients compiled for a GPU that is not here: bytes, kernels, waits, budgets held.

Each workload plainly, by scans nested by hand, by Equinox's loop, and under Retape: by
default, and within the bytes that the scans by hand take. Nothing is run. The compiler
is fetched once, into its own folder.
Run: `python -m benchmarks.accelerators.described [--device h100] [NAME ...]`.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
from benchmarks.accelerators.workloads import ALL, Workload, by_hand, equinox, scanned
from benchmarks.harness import Table

import retape
import retape.jax
from retape.engines.jaxpr.jaxprs._target import Target, compiling_for
from retape.engines.jaxpr.xla._described_devices import described_device
from retape.engines.jaxpr.xla._memory_report import MemoryReport, memory_report

NAMES = ("bptt", "paper", "transformer", "navier-stokes")


def device(name: str) -> Target:
    """The device; its compiler is fetched by the line that the error says."""
    try:
        return described_device(name)
    except retape.MissingPackageError as error:
        line = re.search(r"`pip (install .*?)`", str(error))
        assert line is not None
        subprocess.run([sys.executable, "-m", "pip", *shlex.split(line[1])], check=True)
        return described_device(name)


def ways(workload: Workload) -> Iterator[tuple[str, Callable[..., Any], int | None]]:
    """Gradients by their names, with the bytes of temporaries that were asked for."""
    program = workload.program
    yield "plain", jax.grad(program(scanned)), None
    nested = jax.grad(program(by_hand))
    yield "scans by hand", nested, None
    yield "Equinox", jax.grad(program(equinox(32))), None
    yield "Retape", retape.jax.grad(program(scanned)), None
    report = taken(nested, workload)
    for share in (1.0, 1.5, 2.0, 4.0):
        budget = int(share * report.temp)
        plan = retape.within(budget)
        name = f"Retape, within {share:g} of by hand"
        yield name, retape.jax.grad(program(scanned), plan=plan), budget


def taken(gradient: Callable[..., Any], workload: Workload) -> MemoryReport:
    """What the device's compiler says of a gradient."""
    report = memory_report(gradient, workload.point)
    assert report is not None
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--device", default="h100")
    parser.add_argument("--large", action="store_true")
    given = parser.parse_args()
    described = device(given.device)
    print(f"{described.title}, compiled by JAX {jax.__version__}")
    table = Table("", "", "temporaries, MB", "kernels a step", "waits", "held")
    for name in given.names:
        workload = ALL[name](not given.large)
        with compiling_for(described):
            for way, gradient, budget in ways(workload):
                try:
                    report = taken(gradient, workload)
                except Exception as why:
                    table.row(workload.name, way, type(why).__name__, "", "", "")
                    continue
                assert report.launches is not None
                kernels, waits = report.launches
                held = "" if budget is None else str(report.temp <= budget)
                steps = workload.steps or 1
                table.row(
                    workload.name, way, report.temp / 1e6, kernels / steps, waits, held
                )


if __name__ == "__main__":
    main()

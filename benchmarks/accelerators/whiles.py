"""Loops that a GPU's host has to test, read in programs lowered for CUDA.

`jax.export` lowers for CUDA without a GPU. In its text a loop is one of known trip
count if it goes on while a counter is less than a constant, as a `scan` does; any other
makes the host wait at each turn, and so does a conditional. That is how XLA looks at
it, too, before its own passes find out more. A solve by diffrax names the CPU where
there is nothing else, and cannot be lowered for another platform there.

Run: `python -m benchmarks.accelerators.whiles [NAME ...]`, with names of workloads.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from benchmarks.accelerators.workloads import ALL, Workload, by_hand, equinox, scanned
from jax import export

import retape
import retape.jax

PLAN = retape.fixed_space(snapshots=8, stage=64)


class Loops(NamedTuple):
    """Loops of a program, and conditionals."""

    known: int
    unknown: int
    conditionals: int


def read(module: str) -> Loops:
    """Count in a module's text.

    Examples:
        >>> program = jax.jit(lambda x: jax.lax.while_loop(lambda v: v < 9, abs, x))
        >>> read(export.export(program, platforms=["cuda"])(1.0).mlir_module())
        Loops(known=0, unknown=1, conditionals=0)
    """
    tests = [part.split("} do {")[0] for part in module.split("stablehlo.while")[1:]]
    known = sum(_is_counted(test.split("cond {")[-1]) for test in tests)
    branches = len(re.findall(r"stablehlo\.(?:case|if)\b", module))
    return Loops(known, len(tests) - known, branches)


def _is_counted(test: str) -> bool:
    """Whether a test compares a counter with a constant, and does no more."""
    lines = [line.strip() for line in test.strip().splitlines()]
    lines = [line for line in lines if "stablehlo.constant" not in line]
    compared = re.search(r"compare +LT, %iterArg\S*, %c", lines[0])
    return compared is not None and len(lines) == 2


def loops_of(gradient: Callable[[Any], Any], point: Any) -> Loops:
    """The loops of a function lowered for CUDA."""
    lowered = export.export(jax.jit(gradient), platforms=["cuda"])(point)
    return read(lowered.mlir_module())


def candidates(workload: Workload) -> dict[str, Callable[[Any], Any]]:
    """The gradients that are read."""
    program = workload.program(scanned)
    return {
        "scans by hand": jax.grad(workload.program(by_hand)),
        "Equinox": jax.grad(workload.program(equinox(32))),
        "host's form": retape.jax.grad(program, plan=PLAN, loops="host"),
        "device's form": retape.jax.grad(program, plan=PLAN),
    }


def main(wanted: list[str]) -> None:
    """Print a row for each workload."""
    names = ("scans by hand", "Equinox", "host's form", "device's form")
    print(f"| program | {' | '.join(names)} |")
    print("|---|---|---|---|---|")
    for name in wanted or ALL:
        workload, cells = ALL[name](True), []
        for gradient in candidates(workload).values():
            try:
                found = loops_of(gradient, workload.point)
            except ValueError:  # a length that is unknown, or code for this machine
                cells.append("not lowered")
                continue
            cells.append(f"{found.unknown} of {found.unknown + found.known}")
            cells[-1] += f", {found.conditionals} cond" if found.conditionals else ""
        print(f"| {workload.name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1:])

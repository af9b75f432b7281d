"""Gradients compiled for a GPU that is not here: bytes, kernels, waits, budgets held.

Each workload plainly, by scans nested by hand, by Equinox's loop, and under Retape: by
default, and within the bytes that the scans by hand take, or Equinox where nobody can
nest scans. Gradients come with their values, and what a program closes over is given to
it, as parameters are, so that no way has constants folded. Nothing is run on a GPU; how
many turns a loop makes whose end depends on a value is counted by running the program
here. The compiler is fetched once, into its own folder.
Run: `python -m benchmarks.accelerators.described [--device h100] [NAME ...]`.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

# Equinox's errors call the host, which a device that is not here has not; it reads this
# when it is loaded.
os.environ.setdefault("EQX_ON_ERROR", "nan")

import jax
from benchmarks.accelerators.workloads import (
    Workload,
    adaptive,
    bptt,
    by_hand,
    equinox,
    navier_stokes,
    paper,
    scanned,
    transformer,
    unknown,
)
from benchmarks.harness import Table, asked
from jax.core import eval_jaxpr
from jax.extend.core import ClosedJaxpr

import retape
import retape.jax
from retape.engines.jaxpr.analysis._host_waits import counted
from retape.engines.jaxpr.api.inspect._waits import on_gpu
from retape.engines.jaxpr.jaxprs._target import Target, compiling_for
from retape.engines.jaxpr.xla._ahead_of_time import aot_lower, compiled
from retape.engines.jaxpr.xla._described_devices import described_device
from retape.engines.jaxpr.xla._launches import launches, tested_loops

WORKLOADS: dict[str, Callable[[], Workload]] = {
    "bptt": lambda: bptt(True, (1000, 1000)),
    "navier-stokes": lambda: navier_stokes(True, (64, 200)),
    "transformer": lambda: transformer(True, (48, 128, 128)),
    "paper": lambda: paper(True, (1000, 60, 60)),
    "short-solve": lambda: adaptive(True),
    "solve": lambda: adaptive(True, 20.0),
}
"""So large that a step is what it is in earnest, so small that a row takes seconds."""


class Taken(NamedTuple):
    """What the device's compiler says of a gradient: bytes, kernels, waits."""

    temp: int
    kernels: int | None
    waits: int | None


def device(name: str, fetch: bool) -> Target:
    """The device; its compiler is fetched by the line that the error says."""
    try:
        return described_device(name)
    except retape.MissingPackageError as error:
        if not fetch:
            print(f"not run: {error}")
            sys.exit()
        line = re.search(r"`pip (install .*?)`", str(error))
        assert line is not None
        subprocess.run([sys.executable, "-m", "pip", *shlex.split(line[1])], check=True)
        return described_device(name)


def traced(gradient: Callable[..., Any], workload: Workload) -> ClosedJaxpr:
    """A gradient as a program."""
    return jax.make_jaxpr(gradient)(workload.point)


def lowered(program: ClosedJaxpr, workload: Workload) -> jax.stages.Lowered:
    """A gradient as the device's compiler is given it."""

    def run(given: list[Any], point: Any) -> list[Any]:
        return eval_jaxpr(program.jaxpr, given, point)

    return aot_lower(run, program.consts, workload.point)


def taken(gradient: Callable[..., Any], workload: Workload) -> Taken:
    """What the device's compiler says of a gradient."""
    jaxpr = traced(gradient, workload)
    program = compiled(lowered(jaxpr, workload))
    told = program.memory_analysis()
    assert told is not None
    text = program.as_text()
    assert text is not None
    turns: list[float] = []
    tested = tested_loops(text)
    if tested:
        _, counts = counted(jaxpr, [workload.point], on_gpu)
        loops = [each for each in counts if each.operation == "while"]
        turns = [each.turns / max(1, each.entries) for each in loops]
        if len(turns) > tested:  # XLA found out some of them by itself
            known = set(map(float, re.findall(r'trip_count":{"n":"(\d+)"', text)))
            turns = [t for t in turns if t not in known]
        if len(turns) != tested:
            return Taken(told.temp_size_in_bytes, None, None)
    return Taken(told.temp_size_in_bytes, *launches(text, turns))


Way = tuple[str, Callable[..., Any]]


def rivals(workload: Workload) -> Iterator[Way]:
    """Gradients that are not ours, by their names."""
    program = workload.program
    if workload.steps is not None:
        yield "plain", jax.value_and_grad(program(scanned))
        yield "scans by hand", jax.value_and_grad(program(by_hand))
    yield "Equinox", jax.value_and_grad(program(equinox(32)))


def ours(workload: Workload, budget: int | None) -> Iterator[Way]:
    """Gradients of ours, by their names."""
    program, gradient = workload.program, retape.jax.value_and_grad
    yield "Retape", gradient(program(scanned))
    if workload.name == "BPTT":
        yield "Retape, length unknown", gradient(program(unknown))
    if budget is not None:
        within = gradient(program(scanned), plan=retape.within(budget))
        yield f"Retape, within {budget:,} bytes", within


def rows(workload: Workload, table: Table) -> None:
    """Print what each way takes; the budget is what the first rival but plain took."""
    budget = None
    for name, gradient in rivals(workload):
        found = row(table, workload, name, gradient)
        if found is not None and name != "plain":
            budget = budget or found.temp
    for name, gradient in ours(workload, budget):
        row(table, workload, name, gradient)


def row(
    table: Table, workload: Workload, name: str, gradient: Callable[..., Any]
) -> Taken | None:
    """Print a row; `None` if a gradient cannot be taken."""
    try:
        found = taken(gradient, workload)
    except Exception as why:
        table.row(workload.name, name, type(why).__name__, "", "")
        return None
    steps, counts = workload.steps or 1, (found.kernels, found.waits)
    per_step = ["?" if n is None else n / steps for n in counts]
    table.row(workload.name, name, found.temp / 1e6, *per_step)
    return found


def main() -> None:
    given = asked(__doc__, WORKLOADS, {"names": ["bptt"]}, device="h100")
    described = device(given.device, fetch=not given.quick)
    print(f"{described.title}, compiled by JAX {jax.__version__}")
    table = Table("", "", "temporaries, MB", "kernels a step", "waits a step")
    for name in given.names:
        with compiling_for(described):
            rows(WORKLOADS[name](), table)


if __name__ == "__main__":
    main()

"""What `advise(device=)` says of programs, beside what a user's gradient takes there.

For each way the temporaries that the advice tells, and those that the device's compiler
reports for the gradient as a user writes it, marked with that way's policy.

    python -m benchmarks.accelerators.advised [--device h100] [NAME ...]
"""

from __future__ import annotations

import warnings

import jax
from benchmarks.accelerators.described import WORKLOADS, device
from benchmarks.accelerators.workloads import Workload, scanned
from benchmarks.harness import Table, asked

import retape.jax
from retape.engines.jaxpr.jaxprs._target import Target, compiling_for
from retape.engines.jaxpr.xla._ahead_of_time import aot_compile


def rows(workload: Workload, described: Target, table: Table) -> None:
    """Print a row for each way that the advice knows."""
    loss = workload.program(scanned)
    found = retape.jax.advise(loss, workload.point, device=described.name)
    for each in found.candidates:
        marked = retape.jax.checkpoint(loss, policy=each.policy)
        gradient = jax.value_and_grad(loss if each.policy is None else marked)
        with compiling_for(described):
            told = aot_compile(gradient, workload.point).memory_analysis()
        assert told is not None
        said, taken = each.temp_bytes / 1e6, told.temp_size_in_bytes / 1e6
        chosen = "<- chosen" if each is found.chosen else ""
        table.row(workload.name, each.name, said, taken, said / taken, chosen)


def main() -> None:
    given = asked(__doc__, WORKLOADS, {"names": ["bptt"]}, device="h100")
    warnings.simplefilter("ignore")
    described = device(given.device, fetch=not given.quick)
    print(f"{described.title}, compiled by JAX {jax.__version__}")
    table = Table("", "", "said, MB", "compiled, MB", "ratio", "")
    for name in given.names:
        rows(WORKLOADS[name](), described, table)


if __name__ == "__main__":
    main()

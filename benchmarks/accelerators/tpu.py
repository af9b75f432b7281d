"""Gradients compiled for a TPU, by its own compiler: no TPU is needed.

    pip install "jax[tpu]" equinox
    python -m benchmarks.accelerators.tpu [--small] [WORKLOAD ...]

For each workload and candidate: the temporaries that the compiled gradient takes of the
device's large memory (what is small enough, some tens of MB in all, the compiler places
in the core's own, which is not in this figure); how many of its operations talk to the
host (a TPU runs loops and conditionals by itself, so none should); and divisions and
products of 64-bit integers in the program that was lowered. A TPU has none of those:
each becomes tens to hundreds of operations on halves, which is why a sweep of known
length steers itself with 32 bits
(`control/_integers`). Also `navier-stokes`, which takes the compiler many minutes. Not
the adaptive solve, which diffrax does not lower for another platform.
"""

from __future__ import annotations

import argparse
import os
import re
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
from benchmarks.accelerators.workloads import ALL, Workload, by_hand, equinox, scanned
from benchmarks.for_a_tpu import lowered, place_on

import retape
import retape.jax

NAMES = ("bptt", "paper", "transformer")
MB = 1e6
PLAN = retape.fixed_space(snapshots=32)
_TALKS = (
    r" (?:infeed|outfeed|send|recv)(?:-start)?\("
    r"|custom_call_target=\"[^\"]*(?:[Hh]ost|callback)"
)
_WIDE = r"stablehlo\.(?:divide|remainder|multiply)\b[^\n]*tensor<(?:\d+x)*i64>"


class Compiled(NamedTuple):
    """What the compiler says of one gradient."""

    temporaries: int
    talks: int
    wide: int


def compiled(gradient: Callable[[Any], Any], point: Any, place: Any) -> Compiled:
    """Lower a gradient for the device of a topology, and compile it."""
    given = jax.ShapeDtypeStruct(point.shape, point.dtype, sharding=place)
    program = lowered(jax.jit(gradient).trace(given))
    done = program.compile()
    taken = done.memory_analysis()
    assert taken is not None
    text = done.as_text() or ""
    return Compiled(
        taken.temp_size_in_bytes,
        len(re.findall(_TALKS, text)),
        len(re.findall(_WIDE, program.as_text())),
    )


def candidates(workload: Workload) -> dict[str, Callable[[Any], Any]]:
    """The gradients that are compiled."""
    program = workload.program(scanned)
    return {
        "plain": jax.grad(program),
        "scans by hand": jax.grad(workload.program(by_hand)),
        "Equinox": jax.grad(workload.program(equinox(32))),
        "Retape": retape.jax.grad(program, plan=PLAN),
    }


def main() -> None:
    """Print a row for each workload and candidate."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("names", nargs="*", metavar="WORKLOAD", help=", ".join(ALL))
    options.add_argument("--small", action="store_true", help="the small forms")
    options.add_argument("--topology", default="v5e:2x2x1")
    given = options.parse_args()
    place = place_on(given.topology)
    if place is None:
        return
    print("| workload | gradient | temporaries, MB | to the host | 64-bit * and / |")
    print("|---|---|---|---|---|")
    for name in given.names or NAMES:
        workload = ALL[name](given.small)
        for candidate, gradient in candidates(workload).items():
            print(f"| {workload.name} | {candidate} | {row(gradient, workload, place)}")


def row(gradient: Callable[[Any], Any], workload: Workload, place: Any) -> str:
    """The cells of one gradient, or what its program has against it."""
    try:
        taken = compiled(gradient, workload.point, place)
    except ValueError as why:  # no reverse mode for a loop of unknown length
        return f"{str(why).splitlines()[0][:40]}... | | |"
    except jax.errors.JaxRuntimeError as why:
        return f"{str(why).splitlines()[0][:60]}... | | |"
    return f"{taken.temporaries / MB:.2f} | {taken.talks} | {taken.wide} |"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()

"""What `offload="host"` leaves on a TPU, by its compiler: no TPU is needed.

    pip install libtpu
    python -m benchmarks.layers.offload --width 4096 --snapshots 8

The program is a loop of 40 steps over a square matrix; the table says what temporaries
the compiled gradient takes in the device's memory and in the host's.
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import jax.numpy as jnp
from benchmarks.for_a_tpu import lowered, place_on

import retape
import retape.jax

MIB = 2**20


def loss(plan: retape.Plan) -> Any:
    """A scalar of a matrix, by a loop under a plan."""

    def step(v: Any, t: Any) -> tuple[Any, None]:
        return jnp.tanh(v @ v / v.shape[0]) + t * v, None

    return lambda v: retape.jax.scan(step, v, jnp.arange(40.0) / 90, plan=plan)[0].sum()


def main() -> None:
    """Compile for one device of a topology and print what is taken."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--width", type=int, default=4096)
    options.add_argument("--snapshots", type=int, default=8)
    options.add_argument("--topology", default="v5e:2x2x1")
    given = options.parse_args()
    place = place_on(given.topology)
    if place is None:
        return
    shape = (given.width, given.width)
    matrix = jax.ShapeDtypeStruct(shape, jnp.float32, sharding=place)
    print("offload  device MiB  host MiB")
    for offload in (None, "host"):
        plan = retape.fixed_space(snapshots=given.snapshots, stage=1, offload=offload)
        traced = jax.jit(jax.grad(loss(plan))).trace(matrix)
        taken = lowered(traced).compile().memory_analysis()
        assert taken is not None
        device, host = taken.temp_size_in_bytes, taken.host_temp_size_in_bytes
        print(f"{offload!s:7} {device / MIB:11.1f} {host / MIB:9.1f}")


if __name__ == "__main__":
    main()

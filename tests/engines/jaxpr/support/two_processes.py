"""One of two processes that take a gradient together: run by `test_shard_map.py`.

Arguments: this process's number, and the port on which the first one listens. Prints
the part of the gradient that is here.
"""

import json
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

import retape
import retape.jax


def simulate(x: Any) -> Any:
    turn = lambda c: (c[0] + 1, jnp.sin(c[1]) * 1.1)  # noqa: E731
    going = lambda c: (c[0] < 11) & (jnp.max(c[1]) < 5.0)  # noqa: E731
    return jnp.sum(lax.while_loop(going, turn, (0, x))[1] ** 2)


def main(number: int, port: int) -> None:
    jax.config.update("jax_enable_x64", True)
    jax.distributed.initialize(f"localhost:{port}", num_processes=2, process_id=number)
    mesh = jax.make_mesh((2,), ("d",))
    whole = np.linspace(0.1, 3.0, 8)
    x = jax.make_array_from_callback(
        (8,), NamedSharding(mesh, PartitionSpec("d")), lambda at: whole[at]
    )
    plan = retape.fixed_space(snapshots=3, stage=2)
    slope = jax.jit(retape.jax.grad(simulate, plan=plan))(x)
    part = slope.addressable_shards[0]
    json.dump(
        {"from": part.index[0].start or 0, "part": part.data.tolist()}, sys.stdout
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

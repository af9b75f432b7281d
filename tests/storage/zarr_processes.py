"""One of several processes of JAX's that keep a run in one `ZarrStore`.

    python tests/storage/zarr_processes.py RANK COUNT PORT DIRECTORY

It tries what a store of several processes refuses, and then makes a run, in which each
process is killed. `zarr_on_devices.py` starts them and goes on with the run.
"""

import os
import signal
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import retape
from retape import PlanError, SnapshotError, StoreError
from retape.storage import AsyncStore, Place, Record, ZarrStore

LENGTH = 60


def field_on(mesh):
    """The state at the beginning, on all devices of a mesh."""
    whole = np.linspace(0.0, 3.0, 48 * 8, dtype=np.float32).reshape(48, 8)
    sharding = NamedSharding(mesh, PartitionSpec("x"))
    return jax.make_array_from_callback(whole.shape, sharding, lambda i: whole[i])


@jax.jit
def step(x, k):
    return x + 0.01 * jnp.sin(x)


@jax.jit
def reverse_step(x, k, g):
    return g + 0.01 * jnp.cos(x) * g


def run(mesh, store, **options):
    """A gradient whose states are sharded."""
    return retape.adjoint(
        retape.Program(step, reverse_step),
        field_on(mesh),
        seed=jnp.ones_like,
        steps=LENGTH,
        plan=retape.fixed_space(snapshots=3, stage=5),
        store=store,
        key="a sharded run",
        **options,
    )


class Killed(ZarrStore):
    """A store that dies at the seventh time that something is read."""

    gets = 0

    def get(self, place):
        Killed.gets += 1
        if Killed.gets == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        return ZarrStore.get(self, place)


def refused(kind, text, call):
    """Fail unless a call is refused by name."""
    try:
        call()
    except kind as error:
        assert text in str(error), str(error)
    else:
        raise AssertionError(f"not refused: {text}")


def main(rank, count, port, path):
    jax.distributed.initialize(f"localhost:{port}", count, rank)
    mesh = Mesh(np.array(jax.devices()), ("x",))
    x = field_on(mesh)
    store = ZarrStore(path / "states", mesh=mesh)
    store.open("test")
    # What is not sharded is written once, and has to be alike.
    store.put(Place(0, 0, "disk"), {"x": x, "local": jnp.arange(3.0), "n": 2}, 8)
    found = store.get(Place(0, 0, "disk"))
    assert found["x"].sharding == x.sharding and found["n"] == 2
    assert found["local"].is_fully_addressable and found["local"][2] == 2
    for other in (jnp.arange(3.0) + rank, np.arange(3.0) + rank, rank):
        refused(
            StoreError,
            "process 1 has other values",
            lambda other=other: store.put(Place(1, 1, "disk"), (x, other), 8),
        )
    store.every = 0.0
    assert store.record_due()
    store.record(Record(9, 4, x, "test"))
    if rank == 0:
        (part,) = (path / "states/arrays").glob("step-000000000000-*/*/c/3/0")
        part.unlink()
    refused(SnapshotError, "damaged", lambda: store.get(Place(0, 0, "disk")))
    store.close()
    alone = ZarrStore(path / f"alone{rank}")
    refused(StoreError, "has parts in other", lambda: run(mesh, alone))
    far = ZarrStore(path / f"of{rank}", mesh=mesh)
    refused(StoreError, "not the same directory", lambda: run(mesh, far))
    refused(StoreError, "keep one run together", lambda: AsyncStore(store))
    with retape.interruptible(time_limit=100):
        refused(PlanError, "of several processes", lambda: run(mesh, store))
    half = Mesh(np.array(jax.devices()[: 2 * (count - 1)]), ("x",))
    if count > 2:
        refused(StoreError, "of each, or of one", lambda: ZarrStore(path, mesh=half))
    run(mesh, Killed(path / "run", mesh=mesh, every=0))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), Path(sys.argv[4]))

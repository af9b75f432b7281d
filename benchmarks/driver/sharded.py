"""Processes of JAX's that share a `ZarrStore`, are killed, and change in number.

    python -m benchmarks.driver.sharded [--processes 2 1 4 2]

Each number of processes, with two devices of a CPU each, takes the run up that the one
before has left, and is killed at a read; the last comes to its end. The gradient must
have the bits of an undisturbed one: otherwise this ends with 1.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile


def main() -> None:
    """Start the processes, and print what the last ones say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 1, 4, 2])
    parser.add_argument("--rank", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        rank, count, port, kill, path = options.rank
        run(int(rank), int(count), port, kill == "1", path)
        return
    with tempfile.TemporaryDirectory() as path:
        for number, count in enumerate(options.processes):
            kill = number + 1 < len(options.processes)
            codes = started(count, kill, path)
            if codes != [-signal.SIGKILL if kill else 0] * count:
                sys.exit(f"{count} processes ended with {codes}")
            print(f"{count} processes: {'killed' if kill else 'done'}", flush=True)


def started(count: int, kill: bool, path: str) -> list[int]:
    """The exit codes of processes that run together."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    flags = "--xla_force_host_platform_device_count=2"
    asked = [
        [str(word) for word in (rank, count, port, int(kill), path)]
        for rank in range(count)
    ]
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "--rank", *words],
            env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        )
        for words in asked
    ]
    return [process.wait() for process in processes]


def run(rank: int, count: int, port: str, kill: bool, path: str) -> None:
    """One process: a gradient over sharded states."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    import retape.jax
    from retape.storage import ZarrStore

    class Dying(ZarrStore):
        reads = 0

        def get(self, *place, **named):
            self.__class__.reads += 1
            if kill and self.reads == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            return ZarrStore.get(self, *place, **named)

    if count > 1:
        jax.distributed.initialize(f"localhost:{port}", count, rank)
    mesh = Mesh(np.array(jax.devices()), ("x",))
    field = np.linspace(0, 3, 64 * 64, dtype=np.float32).reshape(64, 64)
    sharding = NamedSharding(mesh, PartitionSpec("x"))
    x = jax.make_array_from_callback(field.shape, sharding, lambda i: field[i])

    def simulate(x: jax.Array) -> jax.Array:
        def body(c: jax.Array, _: None) -> tuple[jax.Array, None]:
            return c + 0.01 * jnp.sin(c), None

        return jax.lax.scan(body, x, None, length=120)[0].sum()

    plan, seen = retape.fixed_space(snapshots=4, stage=10), []
    store = Dying(path, mesh=mesh, every=0)
    found = retape.jax.grad(simulate, plan=plan, store=store, progress=seen.append)(x)
    expected = retape.jax.grad(simulate, plan=plan)(x)
    same = bool((found == expected).all())
    if rank == 0:
        print(f"went on with {seen[0].reversed} steps reversed; same bits {same}")
    sys.exit(not same)


if __name__ == "__main__":
    main()

"""A ring of cells over several processes, reversed; killed, it goes on where all were.

    mpirun -n 4 python examples/ring_mpi.py --out records

Every process has a part of the ring and writes its part of each snapshot to a
directory of its own. Kill one, or all, and run the same line again: all go on from the
record that all have, and the gradient has the same bits. Needs `mpi4py` and an MPI.
"""

import argparse
import os
from pathlib import Path

import numpy as np

import retape
from retape.storage import RankStore

RATE = 1e-3


class Alone:
    """What is asked of a communicator, for one process."""

    def Get_rank(self):
        return 0

    def Get_size(self):
        return 1

    def allgather(self, sendobj):
        return [sendobj]


def gradient(comm, out, cells=1000, steps=400, plan=None, die_at=None):
    """The cotangent of this rank's cells, and the report.

    Args:
        comm: The communicator.
        out: Where all ranks keep their directories.
        cells: Cells of each rank.
        steps: Steps.
        plan: The plan.
        die_at: (rank, calls): for trying it, that rank ends at so many calls.
    """
    rank, size = comm.Get_rank(), comm.Get_size()
    calls = 0

    def halo(mine):
        """What the neighbours have at their ends."""
        ends = comm.allgather((mine[:, :2].copy(), mine[:, -2:].copy()))
        before, after = ends[(rank - 1) % size][1], ends[(rank + 1) % size][0]
        return np.concatenate([before, mine, after], axis=1)

    def step(x, k):
        nonlocal calls
        calls += 1
        if die_at == (rank, calls):
            os._exit(9)
        (wide,) = halo(x[None])
        return x + RATE * wide[1:-3] * wide[3:-1]

    def reverse_step(x, k, g):
        wide, wide_g = halo(np.stack([x, g]))
        after = wide_g[3:-1] * wide[4:]
        before = wide_g[1:-3] * wide[:-4]
        return g + RATE * (after + before)

    x0 = np.sin(np.arange(rank * cells, (rank + 1) * cells) / 50.0)
    store = RankStore(retape.DiskStore(Path(out) / f"rank{rank}", every=0.05), comm)
    result = retape.adjoint(
        retape.Program(step, reverse_step),
        x0,
        seed=lambda x: 2.0 * x,
        steps=steps,
        plan=plan or retape.fixed_space(snapshots=8),
        store=store,
        key=f"ring of {cells} cells a rank",
    )
    return result.cotangent, result.report


def main():
    """Run under `mpirun`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("records"))
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--die", type=int, nargs=2, help="a rank, and at which call")
    options = parser.parse_args()
    try:
        from mpi4py import MPI  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        print("one process alone, since mpi4py is not installed")
        comm = Alone()
    else:
        comm = MPI.COMM_WORLD
    die_at = tuple(options.die) if options.die else None
    cotangent, report = gradient(
        comm, options.out, options.cells, options.steps, die_at=die_at
    )
    parts = comm.allgather(cotangent)
    reports = comm.allgather(report.resumed)
    if comm.Get_rank() == 0:
        whole = np.concatenate(parts)
        np.save(options.out / "gradient.npy", whole)
        print(f"{len(parts)} ranks, resumed: {reports}, norm {np.linalg.norm(whole)}")


if __name__ == "__main__":
    main()

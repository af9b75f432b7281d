"""A rank of `examples/ring_mpi.py` without MPI: its number, how many, directory, death.

The communicator has the interface of mpi4py's, over sockets: rank 0 is asked by all.
"""

import sys
from multiprocessing.connection import Client, Listener
from pathlib import Path
from time import monotonic, sleep

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from ring_mpi import gradient  # noqa: E402

import retape  # noqa: E402


class Sockets:
    """A communicator of processes on one machine."""

    def __init__(self, rank, size, path):
        self.rank, self.size = rank, size
        if rank == 0:
            listener = Listener(path, backlog=size)
            found = dict(self._greeted(listener) for _ in range(size - 1))
            self.others = [found[k] for k in range(1, size)]
        else:
            self.others = [self._reach(path)]
            self.others[0].send(rank)

    def Get_rank(self):
        return self.rank

    def Get_size(self):
        return self.size

    def allgather(self, sendobj):
        if self.rank:
            self.others[0].send(sendobj)
            return self.others[0].recv()
        found = [sendobj, *(other.recv() for other in self.others)]
        for other in self.others:
            other.send(found)
        return found

    @staticmethod
    def _greeted(listener):
        connection = listener.accept()
        return connection.recv(), connection

    @staticmethod
    def _reach(path):
        until = monotonic() + 60
        while True:
            try:
                return Client(path)
            except (FileNotFoundError, ConnectionRefusedError):
                if monotonic() > until:
                    raise
                sleep(0.01)


if __name__ == "__main__":
    rank, size, die_rank, die_call = map(int, sys.argv[1:5])
    folder, socket = Path(sys.argv[5]), sys.argv[6]
    snapshots = int(sys.argv[7]) if rank == size - 1 else 4
    got, report = gradient(
        Sockets(rank, size, socket),
        folder,
        cells=20,
        steps=60,
        plan=retape.fixed_space(snapshots=snapshots, stage=2),
        die_at=(die_rank, die_call),
    )
    np.save(folder / f"got{rank}.npy", got)
    done = report.advances + report.taped
    (folder / f"report{rank}.txt").write_text(f"{report.resumed} {done}")

"""A run in a process of its own, for being killed: path, seed of the pace, length."""

import pathlib
import sys
import time

import numpy as np

import retape
from retape.storage import AsyncStore


def step(x, k):
    """A chaotic map: any state that is off by a bit ends elsewhere."""
    time.sleep(0.0004)
    return 3.9 * x * (1.0 - x) + 1e-3 * np.sin(k)


def reverse_step(x, k, g):
    return 3.9 * (1.0 - 2.0 * x) * g


def run(path, known, length, background):
    disk = retape.DiskStore(path, every=0.02)
    tiered = retape.TieredStore(
        retape.MemoryStore(capacity=1), AsyncStore(disk) if background else disk
    )
    program = retape.Program(step, reverse_step, done=None if known else Done(length))
    return retape.adjoint(
        program,
        np.linspace(0.11, 0.12, 50),
        seed=np.ones_like,
        plan=retape.fixed_space(snapshots=4, stage=5),
        store=tiered,
        reuse=True,
        steps=length if known else None,
    )


class Done:
    """True when asked about the state after the last step: recognised by its values."""

    def __init__(self, length):
        x = np.linspace(0.11, 0.12, 50)
        for k in range(length):
            x = 3.9 * x * (1.0 - x) + 1e-3 * np.sin(k)
        self.last = x.tobytes()

    def __call__(self, x):
        return x.tobytes() == self.last


if __name__ == "__main__":
    pathlib.Path(sys.argv[1] + ".ready").touch()
    kind = sys.argv[2]
    result = run(sys.argv[1], kind != "unknown", int(sys.argv[3]), kind == "background")
    np.savez(
        sys.argv[1] + ".result.npz",
        state=result.state,
        cotangent=result.cotangent,
        resumed=result.report.resumed,
    )

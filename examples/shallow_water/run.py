"""The gradient of a wave's energy at a gauge with respect to the first state.

    python examples/shallow_water/run.py DIRECTORY [--steps 100000] [--cells 4000]

Kill it and call it again: it goes on where it was. 50 MB of snapshots stay in memory,
the others go to the directory. The result is printed with a digest of its bits.
"""

import argparse
from hashlib import blake2b

import numpy as np
from model import Channel

import retape


def main() -> None:
    """Run, or go on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--cells", type=int, default=4000)
    parser.add_argument("--snapshots", type=int, default=1200)
    parser.add_argument("--memory", default="50 MB")
    parser.add_argument("--quiet", action="store_true")
    options = parser.parse_args()
    channel = Channel(options.cells)
    gauge = slice(options.cells * 3 // 4, options.cells * 3 // 4 + 20)

    def seed(q: np.ndarray) -> np.ndarray:
        g = np.zeros_like(q)
        g[0, gauge] = q[0, gauge] - 2.0
        return g

    result = retape.adjoint(
        retape.Program(channel.step, channel.step_adjoint),
        channel.start(),
        seed=seed,
        steps=options.steps,
        plan=retape.fixed_space(snapshots=options.snapshots, stage=80),
        store=retape.TieredStore(
            retape.MemoryStore(capacity_bytes=options.memory),
            retape.DiskStore(options.directory),
        ),
        progress=not options.quiet,
    )
    digest = blake2b(result.cotangent.tobytes(), digest_size=8).hexdigest()
    print(f"largest {np.abs(result.cotangent).max():.12g}, bits {digest}")
    print(result.report)


if __name__ == "__main__":
    main()

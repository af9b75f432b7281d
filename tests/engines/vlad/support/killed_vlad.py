"""A VLAD run in a process of its own, for being killed.

    killed_vlad.py FOLDER PUTS

The process kills itself, with no warning, in the middle of keeping snapshot PUTS; with
-1 it does not. It then prints the bits of the gradient, and whether it took a run up.
"""

import os
import signal
import struct
import sys
from pathlib import Path

from retape import DiskStore, fixed_space, vlad
from retape.storage import _run_directory

PROGRAM = Path(__file__).parent / "programs" / "killed.vlad"


def run(folder: str) -> None:
    module = vlad.compile(
        PROGRAM.read_text(),
        plan=fixed_space(snapshots=4, stage=90),
    )
    store = DiskStore(folder, every=0.0)
    argument = vlad.Vector([0.3, 0.7, -0.4, 1.1])
    gradient = module["g"].checkpointed_grad(argument, store=store)
    print(struct.pack("4d", *gradient).hex())


def dying_after(puts: int) -> None:
    """Arrange for the process to be killed while it writes."""
    write = _run_directory.sync_directory
    count = 0

    def killed(path: object) -> None:
        nonlocal count
        count += 1
        if count == puts:
            os.kill(os.getpid(), signal.SIGKILL)
        write(path)  # type: ignore[arg-type]

    _run_directory.sync_directory = killed


if __name__ == "__main__":
    dying_after(int(sys.argv[2]))
    run(sys.argv[1])

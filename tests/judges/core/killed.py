"""A run in a process of its own, for being killed; what it gives is written in a file.

Path, plan, program, store and the call at which it ends itself (0: none), and whether
the length is known, the steps, and the seconds that each takes.
"""

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from tests.judges.core.test_plans import PLANS, PROGRAMS, STEPS, call


def main(path, plan, program, kind, last, known="known", steps=STEPS, seconds=0):
    ran = 0

    def counted(function):
        def called(*arguments):
            nonlocal ran
            ran += 1
            time.sleep(float(seconds))
            if ran == int(last):
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments)

        return called

    (make,) = [p for p in PROGRAMS if p.__name__ == program]
    how = {"known": bool(known), "steps": int(steps), "wrapped": counted}
    Path(f"{path}.ready").touch()
    found = call(make(), PLANS[plan], kind, path, reuse=True, **how)
    np.savez(
        f"{path}.result.npz",
        state=found.state,
        cotangent=found.cotangent,
        resumed=found.report.resumed,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])

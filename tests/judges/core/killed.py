"""A run in a process of its own that is killed at a step: path, plan, program, step."""

import os
import signal
import sys

from tests.judges.core.test_plans import PLANS, PROGRAMS, call


def main(path, plan, program, kind, last):
    ran = 0

    def counted(function):
        def called(*arguments):
            nonlocal ran
            ran += 1
            if ran == int(last):
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments)

        return called

    (make,) = [p for p in PROGRAMS if p.__name__ == program]
    call(make(), PLANS[plan], kind, path, wrapped=counted)


if __name__ == "__main__":
    main(*sys.argv[1:])

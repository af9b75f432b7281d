"""Runs whose snapshots are processes, in a process of its own: library, cases.

Forks and the threads of JAX, which other tests import, do not go together.
"""

import ctypes
import gc
import os
import resource
import signal
import sys
import threading
import time

import numpy as np

import retape
from retape._forked._machine import Worker
from tests.judges.core.programs import formula, slope

N, STEPS = 500, 25
LIBRARY = ctypes.CDLL(sys.argv[1])
LIBRARY.energy.restype = ctypes.c_double
PLAN = retape.fixed_space(snapshots=3)


def begin(shift=0.0):
    LIBRARY.start(ctypes.c_double(shift))


def step(x, k):
    LIBRARY.make_step()


def reverse_step(x, k, g):
    LIBRARY.reverse(ctypes.c_void_p(g.ctypes.data))
    return g


def state():
    out = np.empty(N)
    LIBRARY.energy(ctypes.c_void_p(out.ctypes.data))
    return out


def energy():
    out = np.empty(N)
    return LIBRARY.energy(ctypes.c_void_p(out.ctypes.data))


def expected(along=False):
    """With an explicit state, and every one of them stored: by the judges' formula."""
    states = [0.2 + 0.001 * np.arange(N)]
    for k in range(STEPS):
        states.append(formula(states[-1], k))
    g = states[-1]
    for x in reversed(states[:-1]):
        g = slope(x) * g + (x if along else 0)
    return states[-1], g


def call(
    step=step,
    seed=lambda x: state(),
    plan=PLAN,
    progress=False,
    steps=STEPS,
    **parts,
):
    begin()
    program = retape.Program(step, reverse_step, hidden=True, **parts)
    result = retape.adjoint(
        program, None, seed=seed, steps=steps, plan=plan, progress=progress
    )
    assert (state() == 0.2 + 0.001 * np.arange(N)).all(), "the caller's own state"
    return result


def children():
    """Processes that this one is the parent of, zombies included."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as stat:
                fields = stat.read().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            found.append(int(pid))
    return found


def right(result, along=False):
    assert np.allclose(result.cotangent, expected(along)[1], rtol=1e-13)
    assert children() == [], "a process is left"


def gradients():
    for plan in (
        PLAN,
        retape.fixed_space(snapshots=2, stage=4),
        retape.segments(),
        retape.tiers(memory=1, disk=2, stage=2),
        retape.tiers(
            levels=(retape.Tier("device", 1), retape.Tier("host", 2, 1, 1)), stage=2
        ),
        None,
    ):
        result = call(plan=plan)
        right(result)
        report = result.report
        assert report.length == STEPS and result.state is None
    result = call()
    predicted = PLAN.predict(STEPS)
    # The last step is run for the seed, and made again in no process.
    assert result.report.advances == predicted.advances
    assert result.report.peak_snapshots == predicted.peak_snapshots
    page = resource.getpagesize()
    assert 3 * 8 * N <= result.report.peak_bytes <= 3 * 500 * page


def ends():
    last = expected()[0]
    result = call(
        steps=None,
        done=lambda x: bool(state()[0] >= last[0] * 0.99999),
        plan=retape.fixed_space(snapshots=2, stage=2),
    )
    right(result)
    assert result.report.length == STEPS


def costs():
    result = call(
        seed=lambda x: np.zeros(N) + state(),
        cost=lambda x, k: energy() if k < STEPS else 0.0,
        cost_gradient=lambda x, k: state() if k < STEPS else np.zeros(N),
    )
    right(result, along=True)
    begin()
    total = 0.0
    for _ in range(STEPS):
        total += energy()
        LIBRARY.make_step()
    assert result.cost == total


class Unreadable(Exception):
    def __init__(self, one, other):
        super().__init__(one)


class Unsendable(Exception):
    def __reduce__(self):
        raise TypeError("not me")


def fails(kind, text, step):
    """An error of a step in a process is its caller's, and no process is left."""
    try:
        call(step)
    except kind as found:
        assert text in str(found), found
    else:
        raise AssertionError("no error")
    assert children() == []


def at(number, does):
    def run(x, k):
        if k == number:
            does()
        LIBRARY.make_step()

    return run


def errors():
    def raises(error):
        raise error

    for error, kind, text in (
        (ArithmeticError("of mine"), ArithmeticError, "of mine"),
        (Unreadable(1, 2), retape.MachineError, r"The error `Unreadable(1)` of a"),
        (Unsendable(), retape.MachineError, "cannot be sent from the process of a sn"),
    ):
        fails(kind, text, at(13, lambda error=error: raises(error)))
    killed = at(13, lambda: os.kill(os.getpid(), signal.SIGKILL))
    fails(retape.MachineError, "which held the state before step", killed)


def snapshots_that_die():
    """Their states are made again."""
    killed = []

    def watch(progress):
        if progress.reversed == 2 and not killed:
            held = [o for o in gc.get_objects() if isinstance(o, Worker)]
            for worker in held:
                if not worker.end.closed and 0 < worker.step < 20:
                    os.kill(worker.pid, signal.SIGKILL)
                    killed.append(worker.step)
            time.sleep(0.1)

    result = call(progress=watch)
    assert killed and result.report.repaired >= 1
    right(result)


def interrupts():
    began = time.monotonic()
    # A shell that starts a job in the background lets it ignore interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    # Again after a while: an interrupt that falls into a destructor is lost, as
    # everywhere in Python.
    signal.setitimer(signal.ITIMER_REAL, 0.5, 5)
    fails(KeyboardInterrupt, "", at(13, lambda: time.sleep(60)))
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert time.monotonic() - began < 30


def wait():
    print("ready", flush=True)
    time.sleep(60)


def dies():
    """For being killed: tells when it has snapshots, and waits."""
    call(progress=lambda progress: wait() if progress.reversed == 3 else None)


def dies_at_work():
    """For being killed while a process is in the middle of a long advance."""
    call(at(13, wait))


def refusals():
    def refused(text):
        try:
            call()
        except retape.UnsupportedError as found:
            assert text in str(found), found
        else:
            raise AssertionError("no error")
        assert children() == []

    waiting = threading.Event()
    other = threading.Thread(target=waiting.wait, name="mine")
    other.start()
    refused("it has other threads (mine), which a child lacks")
    waiting.set()
    other.join()
    sys.modules["jax"] = sys
    refused("and JAX, which is imported, has threads that a child lacks")
    del sys.modules["jax"]
    fork = os.fork
    del os.fork
    refused("forks processes, and this platform cannot. Use a POSIX system")
    os.fork = fork
    right(call())


def limits():
    """Of open files, each of which is the end of a process's pipe."""
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(free := os.dup(0))
    for more in (1, 2, 3, 4, 5):
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + more, usual[1]))
        try:
            call()
        except retape.StoreError as found:
            assert "there can be no more" in str(found), found
        else:
            raise AssertionError("no error")
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)
        assert children() == []
    right(call())


if __name__ == "__main__":
    for case in sys.argv[2:]:
        globals()[case]()

"""The toy machine on a disk, and what it gives by itself."""

from retape import DiskStore
from retape.driver import ToyMachine

ToyCapsule = type(ToyMachine(1).start())


class Crash(Exception):
    """Stands for the end of a process."""


class Watched(ToyMachine):
    """A toy that calls a function before each of its own: it may end the process."""

    def __init__(self, steps, before, **options):
        super().__init__(steps, **options)
        self.before = before

    def advance(self, capsule, steps):
        self.before("advance", capsule, steps)
        return super().advance(capsule, steps)

    def reverse(self, capsule, steps, cotangent):
        self.before("reverse", capsule, steps)
        return super().reverse(capsule, steps, cotangent)

    def tape(self, capsule, steps):
        self.before("tape", capsule, steps)
        return super().tape(capsule, steps)


class Untaped:
    """The toy with the six methods of a `Machine` alone: it cannot hold a tape."""

    def __init__(self, steps, **options):
        self.toy = ToyMachine(steps, **options)
        for name in ("length", "start", "advance", "reverse", "nbytes", "finish"):
            if name not in vars(type(self)):
                setattr(self, name, getattr(self.toy, name))


def ends_after(calls, error=Crash):
    """What ends a process after so many calls of its machine."""
    left = iter(range(calls))

    def before(*call):
        if next(left, None) is None:
            raise error

    return before


def ends_at(name, step, error=Crash):
    """What ends a process before a call from a step, or from all where it is none."""

    def before(called, capsule, steps):
        if called == name and step in (None, capsule.step):
            raise error

    return before


def toys_at(path, every=0.0):
    return DiskStore(path, every=every)


def by_itself(n):
    """With one tape for all steps."""
    machine = ToyMachine(n)
    return machine.reverse(machine.start(), n, None)

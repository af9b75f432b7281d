"""The toy machine on a disk, and what it gives by itself."""

from retape import DiskStore
from retape.driver import ToyMachine

ToyCapsule = type(ToyMachine(1).start())


def toys_at(path, every=0.0):
    return DiskStore(path, every=every)


def by_itself(n):
    """With one tape for all steps."""
    machine = ToyMachine(n)
    return machine.reverse(machine.start(), n, None)

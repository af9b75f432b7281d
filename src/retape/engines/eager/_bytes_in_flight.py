"""Tensors that a thread which sends holds for a moment longer than anybody waits.

A collective has ended for those who wait for it before its thread lets go of what it
read: to do so it needs the interpreter, which it may not get for a while on a loaded
machine. Such bytes are alive when they are counted, and nobody's.
"""

import time
from collections.abc import Callable

_PATIENCE = 2.0  # seconds, in one run
_NAP = 1e-3


class InFlight:
    """What collectives read in one run.

    Attributes:
        nbytes: A margin for what one of them holds.
    """

    __slots__ = ("_patience", "_read", "nbytes")

    def __init__(self) -> None:
        self.nbytes = self._read = 0
        self._patience = _PATIENCE

    def read(self, nbytes: int) -> None:
        """Note that a collective is about to read so many bytes."""
        self.nbytes = max(self.nbytes, 2 * nbytes)
        self._read += 2 * nbytes

    def wait_for(self, excess: Callable[[], float]) -> float:
        """Let the threads go on until there is no excess, or patience is at its end.

        Args:
            excess: Bytes too many at the moment.

        Returns:
            What is left of the excess.
        """
        nap, left = _NAP, excess()
        while 0 < left <= self._read and self._patience > 0:
            time.sleep(nap)
            self._patience -= nap
            nap, left = 2 * nap, excess()
        return left

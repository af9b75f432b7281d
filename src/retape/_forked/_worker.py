"""A process that holds a capsule, as the caller's process sees it."""

# Messages are of any type, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import Any

from retape._errors import MachineError, StoreError
from retape._forked._system import pipe, send


class Worker:
    """A process that holds a capsule, as the caller's process sees it.

    Attributes:
        end: The socket over which it is asked; a process whose socket is closed, or
            forgotten, ends.
        pid: The process.
        step: The step before which its capsule stands.
    """

    def __init__(self, end: Connection, pid: int, step: int) -> None:
        self.end, self.pid, self.step = end, pid, step

    def ask(self, *message: Any, passed: Connection | None = None) -> Any:
        """Send a message, and the end of a pipe if it takes one; wait for the answer.

        Raises:
            MachineError: If the process has died.
            StoreError: If there may be no more processes or open files.
        """
        try:
            self.end.send(message)
            if passed is not None:
                send(self.end, passed)
            fine, answer = self.end.recv()
        except StoreError:
            raise
        except (EOFError, OSError) as error:
            raise MachineError(
                f"process {self.pid}, which held the state before step {self.step}, "
                "has ended: it was killed, or a step has crashed. Look for the "
                "kernel's words about memory, and call again."
            ) from error
        if not fine:
            raise answer
        return answer

    def fork(self) -> Worker:
        """Double the process; the new one holds the same capsule.

        Raises:
            StoreError: If there may be no more processes or open files.
        """
        mine, theirs = pipe()
        with theirs:
            pid = self.ask("fork", passed=theirs)
        return Worker(mine, pid, self.step)

    def is_alive(self) -> bool:
        """Tell whether it still waits for a message: one that has ended has hung up."""
        try:
            return not self.end.poll()
        except OSError:
            return False

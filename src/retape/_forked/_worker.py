"""A process that holds a capsule, as the caller's process sees it."""

# Messages are of any type, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

import os
import socket
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from retape._errors import MachineError
from retape._forked._system import no_more


class Worker:
    """A process that holds a capsule, as the caller's process sees it.

    Attributes:
        pid: The process.
        step: The step before which its capsule stands.
    """

    def __init__(self, end: socket.socket, pid: int, step: int) -> None:
        self.pid, self.step = pid, step
        self._socket: socket.socket | None = end
        self._connection = Connection(os.dup(end.fileno()))

    def ask(self, *message: Any) -> Any:
        """Send a message, and wait for its answer.

        Raises:
            MachineError: If the process has died.
        """
        try:
            self._connection.send(message)
            fine, answer = self._connection.recv()
        except (EOFError, OSError) as error:
            raise self._dead() from error
        if not fine:
            raise answer
        return answer

    def fork(self) -> Worker:
        """Double the process; the new one holds the same capsule.

        Raises:
            StoreError: If there may be no more processes or open files.
        """
        try:
            mine, theirs = socket.socketpair()
        except OSError as error:
            raise no_more("open files", error) from error
        assert self._socket is not None
        try:
            with theirs:
                self._connection.send(("fork",))
                socket.send_fds(self._socket, [b"f"], [theirs.fileno()])
            fine, answer = self._connection.recv()
        except (EOFError, OSError) as error:
            mine.close()
            raise self._dead() from error
        if not fine:
            mine.close()
            raise no_more("processes", answer)
        return Worker(mine, answer, self.step)

    def is_alive(self) -> bool:
        """Tell whether it still waits for a message: one that has ended has hung up."""
        try:
            return not self._connection.poll()
        except OSError:
            return False

    def is_open(self) -> bool:
        """Tell whether nobody has hung up here."""
        return self._socket is not None

    def close(self) -> None:
        """Hang up: a process that waits ends."""
        if self._socket is not None:
            self._socket.close()
            self._connection.close()
            self._socket = None

    def __del__(self) -> None:
        with suppress(OSError):
            self.close()

    def _dead(self) -> MachineError:
        return MachineError(
            f"process {self.pid}, which held the state before step {self.step}, has "
            "ended: it was killed, or a step has crashed. Look for the kernel's words "
            "about memory, and call again."
        )

"""A run's directory that several processes share: the first one has the files.

Each process writes and reads its own parts of arrays. The small files, and all that is
looked up, removed or locked, are the first process's: it does what it is asked, and
tells the others what it has found, or what went wrong. So all of them see the same.
"""

import os
import pickle
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from retape._errors import SnapshotError, StoreError
from retape.storage._codec import decode
from retape.storage._run_directory import Key
from retape.storage._sharded._array_directory import ArrayDirectory
from retape.storage._sharded._processes import Processes


class SharedDirectory(ArrayDirectory):
    """What `ArrayDirectory` is, for all processes of a program together.

    Attributes:
        path: The directory, on a file system that all processes see.
        is_first: Whether this process is the one that has the files.
    """

    def __init__(self, own: ArrayDirectory, processes: Processes) -> None:
        super().__init__(own.path)
        self._own, self._processes = own, processes
        self.is_first = processes.rank == 0
        self._claimed = False

    def claim(self) -> None:
        """Keep other programs out; see that the directory is the same for all.

        Raises:
            StoreError: If it is not, or another program has it.
        """
        self._first(self._own.claim)
        self._claimed = True
        place = self.path / "arrays" / self.new_folder("shared")
        self._first(lambda: place.mkdir(parents=True))
        there = self._processes.all_gather(b"there" if os.path.isdir(place) else b"")
        self._first(place.rmdir)
        if not all(there):
            self.release()
            raise StoreError(
                f"`{self}` is not the same directory for process {there.index(b'')} "
                "as for the first one. Pass a path on a file system that all "
                "processes share."
            )

    def release(self) -> None:
        """Let others in; nobody waits for anybody, since this may be alone in it."""
        self._claimed = False
        if self.is_first:
            self._own.release()

    def is_claimed(self) -> bool:
        """Whether `claim` was called."""
        return self._claimed

    def settle(self, error: StoreError | None, digest: bytes = b"") -> None:
        """Raise what went wrong in any process, or what is not alike in all.

        Raises:
            SnapshotError: If one could not read its part, and all can go on.
            StoreError: For all else.
        """
        if error is None:
            said = b"\0" + digest
        else:
            lost = isinstance(error, SnapshotError)
            said = (b"\1" if lost else b"\2") + str(error).encode()
        heard = self._processes.all_gather(said)
        rank = max(range(len(heard)), key=lambda k: heard[k][0])
        worst, text = heard[rank][0], heard[rank][1:].decode(errors="replace")
        if worst:
            if error is not None and heard[self._processes.rank][0] == worst:
                raise error
            raise (SnapshotError if worst == 1 else StoreError)(
                f"process {rank}: {text}"
            )
        for rank, other in enumerate(heard):
            if other != heard[0]:
                raise StoreError(
                    f"`{self}`: process {rank} has other values than the first one in "
                    "what is not sharded, so it is another state. Make one array of "
                    "all processes' parts (`jax.make_array_from_process_local_data`), "
                    "or give each process a store of its own (`RankStore`)."
                )

    def get(self, key: Key) -> tuple[Any, dict[str, Any]]:
        """A state or a tape, and its label.

        Raises:
            SnapshotError: If it is not there, or damaged.
        """
        data = self._first(lambda: self._own.contents(self._own.name(key)))
        return decode(data, self.where(key))

    def put(self, key: Key, data: bytes) -> None:
        """Write a state or a tape, which must be alike in all processes."""
        self.settle(None, blake2b(data).digest())
        self._first(lambda: self._own.put(key, data))

    def read_record(self) -> tuple[Any, dict[str, Any]] | None:
        """The last record, or the one before it if the last one is damaged."""
        found = self._first(self._own.record_contents)
        return None if found is None else decode(found[1], found[0])

    def write_record(self, data: bytes) -> None:
        """Write the record, which must be alike in all processes."""
        self.settle(None, blake2b(data).digest())
        self._first(lambda: self._own.write_record(data))

    def decide(self, says: Callable[[], bool]) -> bool:
        """What the first process says."""
        return self._first(says)

    def agree(self, said: bool) -> bool:
        """Whether all processes say so."""
        return all(self._processes.all_gather(b"yes" if said else b""))

    def tell(self, failure: BaseException) -> None:
        """Tell the processes that wait in `settle` that this one goes no further."""
        self._processes.all_gather(b"\2" + _described(failure).encode())

    def _first(self, call: Callable[[], Any]) -> Any:
        """Let the first process do something; what it found, or its error, for all.

        Whatever it is that goes wrong: the others wait for an answer.
        """
        said, failure = b"", None
        if self.is_first:
            try:
                said = pickle.dumps((None, call()))
            except (StoreError, OSError) as error:
                lost = isinstance(error, SnapshotError)
                kind = SnapshotError if lost else StoreError
                said = pickle.dumps((kind, str(error)))
            except BaseException as error:
                failure = error
                text = f"process 0: {_described(error)}"
                said = pickle.dumps((StoreError, text))
        # Between processes that run, and in no file: so `pickle` opens no door.
        kind, found = pickle.loads(self._processes.all_gather(said)[0])
        if failure is not None:
            raise failure
        if kind is not None:
            raise kind(found)
        return found


def _by_the_first(name: str) -> Any:
    """What the first process does, and all are told."""

    def done(self: SharedDirectory, *given: Any) -> Any:
        return self._first(lambda: getattr(self._own, name)(*given))  # pyright: ignore[reportPrivateUsage]

    return done


for _name in (
    *("has", "label", "snapshots", "new_folder", "remove", "remove_folder"),
    *("keep_one", "keep_records", "remove_unfinished"),
    *("remove_last_record", "remove_records"),
):
    setattr(SharedDirectory, _name, _by_the_first(_name))


def _described(failure: BaseException) -> str:
    return f"{type(failure).__name__}: {failure}"

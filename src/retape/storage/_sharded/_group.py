"""Several processes that keep one run: what one says all hear, what fails in one fails
in all.

They exchange messages inside a step, so they must run the same steps in the same order,
also after a crash and also where one of them cannot read a file. So what decides what
is run next is decided together, and none goes on while another waits for its answer.
All speak in the same order: that they do, since they run the same program.
"""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from retape._errors import SnapshotError, StoreError

T = TypeVar("T")


class Communicator(Protocol):
    """What is asked of a communicator: `mpi4py.MPI.COMM_WORLD` is one."""

    def Get_rank(self) -> int: ...

    def Get_size(self) -> int: ...

    def allgather(self, sendobj: Any) -> list[Any]:
        """Give an object to all processes; get those of all, by their numbers."""
        ...


class Alone:
    """The communicator of one process."""

    def Get_rank(self) -> int:
        return 0

    def Get_size(self) -> int:
        return 1

    def allgather(self, sendobj: Any) -> list[Any]:
        return [sendobj]


@dataclass(frozen=True, slots=True)
class Group:
    """The processes of a communicator.

    Attributes:
        comm: It.
        name: What one of them is called in messages.
    """

    comm: Communicator
    name: str

    @property
    def is_first(self) -> bool:
        """Whether this is the process that speaks for all where one has to."""
        return self.comm.Get_rank() == 0

    @property
    def is_many(self) -> bool:
        """Whether there are several."""
        return self.comm.Get_size() > 1

    def heard(self, said: T) -> list[T]:
        """What each process says."""
        return self.comm.allgather(said)

    def agree(self, said: bool) -> bool:
        """Whether all processes say so."""
        return all(self.heard(said))

    def together(
        self,
        call: Callable[[], T],
        could_not: str = "",
        *,
        failed: StoreError | None = None,
        says: Callable[[T], object] = lambda found: None,
    ) -> tuple[T, list[Any]]:
        """Do something in each process; it fails where it fails in any.

        Args:
            call: What to do.
            could_not: What another process could not do, for the error.
            failed: What has failed here already; nothing is done then.
            says: What to say of what was found, which is no tuple: that is a failure.

        Returns:
            What was found, and what each process says.

        Raises:
            SnapshotError: If one could not read its part, and all can go on.
            StoreError: For all else.
        """
        found: Any = None
        said: object = None
        try:
            if failed is None:
                found = call()
                said = says(found)
        except StoreError as error:
            failed = error
        except OSError as error:
            failed = StoreError(str(error))
        except BaseException as error:
            # The others wait for an answer, whatever it is that went wrong.
            self.heard((False, f"{type(error).__name__}: {error}"))
            raise
        lost = isinstance(failed, SnapshotError)
        heard: list[Any] = self.heard((lost, str(failed)) if failed else said)
        ill = [rank for rank, each in enumerate(heard) if type(each) is tuple]
        if not ill:
            return found, heard
        # What cannot be mended goes before what can.
        rank = min(ill, key=lambda rank: heard[rank][0])
        can_be_mended, text = heard[rank]
        if failed and lost == can_be_mended:
            raise failed
        who = f"{self.name} {rank}" + f" could not {could_not}" * bool(could_not)
        raise (SnapshotError if can_be_mended else StoreError)(f"{who}: {text}")

    def first(self, call: Callable[[], T]) -> T:
        """Let the first process do something; what it found, or its error, for all."""
        _, heard = self.together(
            lambda: call() if self.is_first else None, says=pickle.dumps
        )
        return pickle.loads(heard[0])


def unlike(heard: Sequence[T]) -> tuple[int, T] | None:
    """The first process that says something else than process 0, and what.

    Examples:
        >>> unlike([7, 7, 8]), unlike([7, 7])
        ((2, 8), None)
    """
    others = enumerate(heard)
    return next((pair for pair in others if pair[1] != heard[0]), None)

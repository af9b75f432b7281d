"""Several processes in one directory: what goes wrong in one, all hear of.

Threads stand for the processes, so that no test waits for JAX; what they say is
gathered as its collective does. `zarr_processes.py` has real ones.
"""

import threading

import pytest

from retape import SnapshotError, StoreError
from retape.storage._sharded._array_directory import ArrayDirectory


class Gathering:
    """A rank of two; a collective that one of them does not come to fails the test."""

    def __init__(self, rank, barrier, said):
        self.rank, self.barrier, self.said = rank, barrier, said

    def Get_rank(self):
        return self.rank

    def Get_size(self):
        return 2

    def allgather(self, said):
        self.said[self.rank] = said
        self.barrier.wait()
        heard = list(self.said)
        self.barrier.wait()
        return heard


def on_both(path, does, patience=60):
    """What each rank returns or raises."""
    barrier = threading.Barrier(2, timeout=patience)
    said, found = [b"", b""], [None, None]

    def rank(number):
        mine = Gathering(number, barrier, said)
        directory = ArrayDirectory(path, mine)
        try:
            found[number] = does(directory)
        except BaseException as error:
            found[number] = error

    threads = [threading.Thread(target=rank, args=(n,)) for n in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a value"),
        MemoryError(),
        KeyboardInterrupt(),
        OSError("disk full"),
        StoreError("not here"),
        SnapshotError("damaged"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_fails_in_the_first_process_all_hear_of(tmp_path, error):
    def fails():
        raise error

    def does(directory):
        directory.first(fails)

    first, other = on_both(tmp_path, does)
    expected = SnapshotError if isinstance(error, SnapshotError) else StoreError
    assert type(other) is expected and str(error) in str(other)
    known = isinstance(error, OSError | StoreError)
    assert type(first) is (expected if known else type(error))
    if not known:
        assert str(other).startswith(f"process 0: {type(error).__name__}")


def test_an_answer_that_cannot_be_sent_is_an_error_of_all(tmp_path):
    first, other = on_both(tmp_path, lambda directory: directory.first(threading.Lock))
    assert isinstance(first, TypeError) and isinstance(other, StoreError)


@pytest.mark.parametrize("failing", [0, 1])
def test_those_that_wait_for_parts_hear_of_any_error(tmp_path, failing):
    def divides(directory):
        return 1 // (directory.is_first != (failing == 0))

    def does(directory):
        return directory.together(lambda: divides(directory), lambda: b"a digest")

    found = on_both(tmp_path, does)
    assert isinstance(found[failing], ZeroDivisionError)
    text = f"process {failing}: ZeroDivisionError: "
    heard = found[1 - failing]
    assert isinstance(heard, StoreError) and text in str(heard)


def test_what_the_first_process_finds_all_have(tmp_path):
    one, other = on_both(tmp_path, lambda directory: directory.new_folder("it"))
    assert one == other and one.startswith("it-")


def test_a_model_of_a_process_that_does_not_come_is_seen(tmp_path):
    found = on_both(
        tmp_path,
        lambda directory: directory.is_first or directory.agree(True),
        patience=0.2,
    )
    assert isinstance(found[1], threading.BrokenBarrierError)

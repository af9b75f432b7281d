"""What a disk, a memory and the two together do beside the laws of `check_store`."""

import errno
import os
import subprocess
import sys

import numpy as np
import pytest

from retape import (
    DiskStore,
    MemoryStore,
    SnapshotError,
    StoreError,
    TieredStore,
)
from retape.storage import Place, Record, fingerprint


def opened(path, **options):
    store = DiskStore(path, **options)
    store.open("test")
    return store


@pytest.fixture
def disk(tmp_path):
    made = opened(tmp_path / "run", every=0)
    yield made
    made.close()


def file_of(disk, step):
    return disk.path / f"step-{step:012d}.npz"


# Capacities. ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "options", "said"),
    [
        (MemoryStore, {"capacity": 1}, "step 4 would be snapshot 2 .* `capacity=1`"),
        (opened, {"capacity": 1}, "step 4 would be snapshot 2 .* `capacity=1`"),
        (MemoryStore, {"capacity_bytes": "1 kB"}, "needs 2 B beside the 999 B in this"),
        (opened, {"capacity_bytes": 1000}, "step 4 needs 2 B beside the 999 B in"),
    ],
)
def test_a_store_keeps_to_its_capacities(tmp_path, make, options, said):
    store = make(**options) if make is MemoryStore else make(tmp_path, **options)
    store.put(Place(0, 0), "x", 999)
    with pytest.raises(StoreError, match=said):
        store.put(Place(4, 1), "y", 2)
    assert store.nbytes == 999 and store.get(Place(0, 0)) == "x"
    assert (store.peak_snapshots, store.peak_bytes) == (1, 999)
    if make is opened:
        store.close()


@pytest.mark.parametrize("make", [MemoryStore, lambda **given: DiskStore("x", **given)])
def test_numpys_integers_are_capacities(make):
    for kind in (np.int64, np.int8):
        store = make(capacity=kind(2))
        assert store.capacity == 2 and type(store.capacity) is int


def test_the_memory_store_refuses_a_schedule_that_disagrees():
    store = MemoryStore()
    with pytest.raises(StoreError, match="slot 2 on tier 'memory' is empty"):
        store.get(Place(1, 2))
    store.put(Place(1, 2), "x", 1)
    with pytest.raises(StoreError, match="holds step 1, and step 5 was asked for"):
        store.drop(Place(5, 2))
    with pytest.raises(StoreError, match="holds step 1 and cannot take step 6"):
        store.put(Place(6, 2), "x", 1)


def test_dropped_files_do_not_exceed_the_capacity(tmp_path):
    """They wait for the next record, unless their room is needed before."""
    store = opened(tmp_path, capacity=3, every=1e9)
    for step in range(30):
        if step >= 2:
            store.drop(Place(step - 2, step % 2))
        store.put(Place(step, step % 2), 1.0, 8)
        assert len(list(tmp_path.glob("step-*.npz"))) == min(step + 1, 3)
        assert store.nbytes == 8 * min(step + 1, 2)
    store.close()


def test_the_bytes_on_disk_are_known_to_the_next_process(tmp_path):
    store = opened(tmp_path)
    for step in (0, 4, 9):
        store.put(Place(step, step), np.zeros(10), 80)
    store.close()
    later = opened(tmp_path, capacity_bytes=170)
    file_of(later, 9).write_bytes(b"damaged")
    later.keep_only({0, 4, 9})
    assert later.nbytes == 160
    with pytest.raises(StoreError, match="needs 80 B beside the 160 B in"):
        later.put(Place(12, 1), np.zeros(10), 80)
    later.close()


def test_a_snapshot_larger_than_the_memory_goes_to_the_disk(tmp_path):
    memory = MemoryStore(capacity=2, capacity_bytes=100)
    store = TieredStore(memory, DiskStore(tmp_path, capacity=2))
    store.open("test")
    store.put(Place(0, 0), "large", 101)
    store.put(Place(1, 1), "small", 60)
    store.put(Place(2, 2), "no room for it", 41)
    assert store.steps() == {0, 2} and len(memory) == 1
    store.put(Place(3, 3), "small", 40)
    assert len(memory) == 2 and memory.nbytes == 100
    with pytest.raises(StoreError, match="step 4 would be snapshot 3 in .*capacity=2"):
        store.put(Place(4, 4), "neither", 1)
    store.drop(Place(1, 1))
    store.put(Place(4, 4), "freed", 60)
    assert store.get(Place(4, 4)) == "freed" and store.steps() == {0, 2}
    store.close()


def test_memory_comes_first_and_is_lost_with_its_process(tmp_path):
    def tiered():
        store = TieredStore(MemoryStore(capacity=1), DiskStore(tmp_path))
        store.open("test")
        return store

    store = tiered()
    for step, slot, tier in [(0, 0, "memory"), (4, 1, "memory"), (8, 0, "disk")]:
        store.put(Place(step, slot, tier), float(step), 8)
    assert store.steps() == {4, 8}
    assert (store.peak_snapshots, store.peak_bytes) == (3, 24)
    store.close()
    later = tiered()
    assert later.get(Place(4, 1)) == 4.0
    with pytest.raises(SnapshotError, match="step 0 was in memory when its process"):
        later.get(Place(0, 0))
    later.close()


def test_a_state_and_a_tape_are_told_apart(tmp_path):
    store = opened(tmp_path)
    store.put(Place(1, 0), (3, 1), 8)
    store.put(Place(2, 1, tape=True), (3.0, [1]), 8)
    assert (
        store.steps() == {1}
        and store.has(Place(2, 1, tape=True))
        and not store.has(Place(2, 1))
    )
    assert store.get(Place(2, 1, tape=True)) == (3.0, [1])
    store.keep_only({1})
    assert not store.has(Place(2, 1, tape=True))
    with pytest.raises(SnapshotError, match="tape-0*2.npz` is not there"):
        store.get(Place(2, 1, tape=True))
    store.close()


# What an operating system refuses. ------------------------------------------------


def refusal(number):
    return OSError(number, os.strerror(number))


def no_room(monkeypatch):
    def full(handle):
        raise refusal(errno.ENOSPC)

    monkeypatch.setattr(os, "fsync", full)


def no_renaming(monkeypatch):
    def refuse(self, target):
        raise refusal(errno.EACCES)

    monkeypatch.setattr("pathlib.Path.replace", refuse)


def no_opening(monkeypatch, refused):
    real = os.open

    def refuse(path, flags, mode=0o777):
        if refused(path, flags):
            raise refusal(errno.EACCES)
        return real(path, flags, mode)

    monkeypatch.setattr("retape.storage._run_directory.os.open", refuse)


def no_flushing_of_folders(monkeypatch):
    no_opening(monkeypatch, lambda path, flags: os.path.isdir(path))


@pytest.mark.parametrize(
    ("refuse", "said", "left"),
    [
        (no_room, "`.*step-0*5.npz` cannot be written: No", []),
        (no_renaming, "cannot be written: Permission denied. Correct", []),
        (no_flushing_of_folders, "cannot be written: Permission denied", [5]),
    ],
)
def test_a_write_that_is_refused_is_named_and_leaves_no_part(
    disk, monkeypatch, refuse, said, left
):
    disk.put(Place(4, 0), 1.0, 8)
    with monkeypatch.context() as within:
        refuse(within)
        with pytest.raises(StoreError, match=said):
            disk.put(Place(5, 1), 2.0, 8)
    found = {file.name for file in disk.path.iterdir()}
    files = {file_of(disk, step).name for step in [4, *left]}
    assert found == {"lock", "record.npz", *files}


def test_a_read_only_directory_is_named(tmp_path, monkeypatch):
    # As a read-only directory does, except to root, who may write anywhere.
    no_opening(monkeypatch, lambda path, flags: flags & os.O_CREAT)
    with pytest.raises(StoreError, match="run` cannot be used: Permission denied"):
        opened(tmp_path / "run")


def test_a_disk_that_fills_up_is_freed_of_what_was_dropped(disk, monkeypatch):
    """The write is tried again without the files that only a crash would need."""
    real = os.fsync

    def full(handle):
        if file_of(disk, 4).exists():
            raise refusal(errno.ENOSPC)
        real(handle)

    disk.put(Place(4, 0), 1.0, 8)
    disk.drop(Place(4, 0))
    monkeypatch.setattr(os, "fsync", full)
    disk.put(Place(5, 0), 2.0, 8)
    assert disk.steps() == {5}


SECOND = """
import sys, retape
for attempt in range(2):
    try:
        retape.DiskStore(sys.argv[1]).open('test')
        print('opened', flush=True)
    except retape.StoreError as error:
        print(error, flush=True)
    sys.stdin.readline()
"""


def test_a_second_process_is_refused_until_the_first_has_closed(disk):
    command = [sys.executable, "-c", SECOND, os.fspath(disk.path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as other:
        said = other.stdout.readline()
        assert "is in use by another process, or another store of" in said
        disk.close()
        assert other.communicate("\n\n")[0] == "opened\n"
    assert other.returncode == 0


# Records. -------------------------------------------------------------------------


def test_files_of_others_are_left_alone(tmp_path):
    names = ["film.part", "step-7.npz", "step-x.part", "tape-000000000001.npy", "a.npz"]
    for name in names:
        (tmp_path / name).write_text("mine")
    ours = ["step-000000000003.part", "record.part", "tape-000000000003.part"]
    for name in ours:
        (tmp_path / name).write_text("half a file")
    store = opened(tmp_path)
    assert store.steps() == set()
    store.clear()
    store.close()
    assert sorted(os.listdir(tmp_path)) == sorted([*names, "lock"])


def test_a_record_frees_what_was_dropped(disk):
    disk.put(Place(0, 0), 1.0, 8)
    disk.put(Place(1, 1), 1.0, 8)
    disk.drop(Place(1, 1))
    assert disk.steps() == {0, 1} and disk.record_due()
    disk.record(Record(9, 5, (np.ones(2), 3), "test"))
    assert disk.steps() == {0}
    disk.close()
    record = disk.open("test")
    assert record is not None and (record.length, record.left) == (9, 5)
    assert fingerprint(record.cotangent) == fingerprint((np.ones(2), 3))


def spoil(disk, *names):
    for name in names:
        (disk.path / name).write_bytes(b"x")


def test_a_damaged_record_is_named(disk):
    disk.close()
    spoil(disk, "record.npz", "record-before.npz")
    message = (
        "has no record of its run that can be read .*record-before.npz` is not a snap.*"
        "Call `clear"
    )
    with pytest.raises(StoreError, match=message):
        disk.open("test")
    # The directory is given up: it can be opened again once the files are removed.
    disk.clear()
    assert disk.open("test") is None


@pytest.mark.parametrize("damage", [b"", b"x", bytes(3000)])
def test_a_damaged_record_costs_the_work_since_the_one_before(disk, damage):
    disk.record(Record(9, 5, 1.0, "test"))
    disk.record(Record(9, 3, 2.0, "test"))
    disk.close()
    (disk.path / "record.npz").write_bytes(damage)
    assert disk.open("test") == Record(9, 5, 1.0, "test")
    # The damaged file must not take the place of the good one.
    disk.record(Record(9, 2, 4.0, "test"))
    disk.close()
    assert disk.open("test") == Record(9, 2, 4.0, "test")
    disk.close()
    (disk.path / "record.npz").unlink()
    assert disk.open("test") == Record(9, 5, 1.0, "test")

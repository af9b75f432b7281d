"""One suite for every store, and every error that a disk can give."""

import errno
import os
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from retape import (
    DiskStore,
    MemoryStore,
    RetapeWarning,
    SnapshotError,
    StoreError,
    TieredStore,
)
from retape.storage import Record, copy_tree, fingerprint, tree_nbytes

TREE = {
    "field": np.arange(6.0).reshape(2, 3),
    "rest": (1, [2.5, None, True, "text"], np.float32(0.1)),
    "empty": np.zeros((0, 3), dtype=np.complex64),
    "zero_d": np.array(7, dtype=np.int8),
    "huge": 10**40,
    "complex": 0.1 - 0.2j,
}


def make(kind, path):
    if kind == "memory":
        return MemoryStore()
    disk = DiskStore(path, every=0)
    disk.open("test")
    return disk if kind == "disk" else TieredStore(MemoryStore(capacity=1), disk)


@pytest.fixture(params=["memory", "disk", "tiered"])
def store(request, tmp_path):
    made = make(request.param, tmp_path / "run")
    yield made
    if request.param != "memory":
        made.close()


def test_what_is_put_is_given_back_bit_for_bit(store):
    store.put(3, 0, "memory", TREE, 100)
    store.put(9, 1, "memory", TREE, 50)
    for step, slot in [(3, 0), (9, 1), (3, 0)]:
        back = store.get(step, slot, "memory")
        assert fingerprint(back) == fingerprint(TREE)
        assert back["complex"] == TREE["complex"]
        assert type(back["rest"]) is tuple and back["huge"] == 10**40
        assert isinstance(back["rest"][2], np.float32)
        assert back["empty"].shape == (0, 3) and back["zero_d"].shape == ()
    assert (store.peak_snapshots, store.peak_bytes) == (2, 150)
    store.drop(3, 0, "memory")
    store.drop(9, 1, "memory")
    store.put(4, 0, "memory", 1.5, 8)
    assert store.get(4, 0, "memory") == 1.5
    assert (store.peak_snapshots, store.peak_bytes) == (2, 150)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "int4"])
def test_number_types_of_other_packages_survive(store, name):
    pytest.importorskip("ml_dtypes")
    value = np.arange(6).reshape(2, 3).astype(name)
    store.put(0, 0, "memory", (value, value[1, 2], value[0:0]), 12)
    whole, single, empty = store.get(0, 0, "memory")
    assert whole.dtype == single.dtype == empty.dtype == np.dtype(name)
    assert fingerprint(whole) == fingerprint(value) and float(single) == 5.0


def test_fingerprints_tell_small_differences():
    one = np.zeros(3)
    other = one.copy()
    other[1] = -0.0
    assert fingerprint(one) == fingerprint(one.copy())
    assert fingerprint(one) != fingerprint(other)
    assert fingerprint(one) != fingerprint(one.reshape(3, 1))
    assert fingerprint(one) != fingerprint(one.astype(np.float32))
    assert fingerprint((1, 2)) != fingerprint([1, 2])


def test_trees_are_measured_and_copied():
    assert tree_nbytes((np.zeros(4), 1, {"a": 2.0}, 1j)) == 64
    copied = copy_tree(TREE)
    assert fingerprint(copied) == fingerprint(TREE)
    assert copied["field"] is not TREE["field"]
    copied["field"][0, 0] = 1


def test_the_memory_store_keeps_to_its_capacities():
    store = MemoryStore(capacity=1)
    store.put(0, 0, "memory", "x", 5)
    with pytest.raises(StoreError, match="step 4 would be snapshot 2 .* `capacity=1`"):
        store.put(4, 1, "memory", "y", 5)
    store = MemoryStore(capacity_bytes="1 kB")
    store.put(0, 0, "memory", "x", 999)
    with pytest.raises(StoreError, match="needs 2 B beside the 999 B in this"):
        store.put(4, 1, "memory", "y", 2)
    assert len(store) == 1 and store.nbytes == 999


def test_the_memory_store_refuses_a_schedule_that_disagrees():
    store = MemoryStore()
    with pytest.raises(StoreError, match="slot 2 on tier 'memory' is empty"):
        store.get(1, 2, "memory")
    store.put(1, 2, "memory", "x", 1)
    with pytest.raises(StoreError, match="holds step 1, and step 5 was asked for"):
        store.drop(5, 2, "memory")
    with pytest.raises(StoreError, match="holds step 1 and cannot take step 6"):
        store.put(6, 2, "memory", "x", 1)


@pytest.fixture
def disk(tmp_path):
    made = DiskStore(tmp_path / "run", every=0)
    made.open("test")
    yield made
    made.close()


def file_of(disk, step):
    return disk.path / f"step-{step:012d}.npz"


def test_numpy_itself_reads_a_snapshot(disk):
    disk.put(5, 0, "memory", np.arange(3.0), 24)
    with np.load(file_of(disk, 5)) as members:
        assert members["array0"].tolist() == [0.0, 1.0, 2.0]


def test_a_truncated_snapshot_is_named(disk):
    disk.put(5, 0, "memory", np.arange(300.0), 2400)
    whole = file_of(disk, 5).read_bytes()
    for size in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        file_of(disk, 5).write_bytes(whole[:size])
        with pytest.raises(SnapshotError, match="step-000000000005.npz.* damaged"):
            disk.get(5, 0, "memory")


def test_every_flipped_bit_is_caught_or_harmless(disk, seeded):
    value = np.arange(40.0)
    disk.put(5, 0, "memory", value, 320)
    whole = file_of(disk, 5).read_bytes()
    caught = 0
    for place in seeded.sample(range(8 * len(whole)), 400):
        data = bytearray(whole)
        data[place // 8] ^= 1 << place % 8
        file_of(disk, 5).write_bytes(bytes(data))
        try:
            back = disk.get(5, 0, "memory")
        except SnapshotError:
            caught += 1
        else:
            assert fingerprint(back) == fingerprint(value)
    assert caught > 200


def test_changed_contents_with_a_valid_archive_are_caught(disk):
    disk.put(5, 0, "memory", np.arange(3.0), 24)
    with np.load(file_of(disk, 5)) as members:
        changed = {**members, "array0": np.arange(3.0) + 1e-16}
        changed["array0"][2] = 2.0000001
    np.savez(file_of(disk, 5), **changed)
    with pytest.raises(SnapshotError, match="do not match their checksum"):
        disk.get(5, 0, "memory")


@pytest.mark.parametrize("kind", ["text", "npz", "zip"])
def test_a_foreign_file_is_named(disk, kind):
    file = file_of(disk, 5)
    if kind == "text":
        file.write_text("hello")
    elif kind == "npz":
        np.savez(file, a=np.zeros(3))
    else:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("tree", "x")
    with pytest.raises(SnapshotError, match="is not a snapshot of this library"):
        disk.get(5, 0, "memory")


def test_a_format_of_another_version_is_named(disk, monkeypatch):
    monkeypatch.setattr("retape.storage._codec.FORMAT", "retape-0")
    disk.put(5, 0, "memory", np.arange(3.0), 24)
    monkeypatch.undo()
    with pytest.raises(SnapshotError, match="its format is 'retape-0'"):
        disk.get(5, 0, "memory")


def test_a_snapshot_of_another_step_is_foreign(disk):
    disk.put(5, 0, "memory", 1.0, 8)
    file_of(disk, 5).rename(file_of(disk, 6))
    with pytest.raises(SnapshotError, match="belongs to another run or step"):
        disk.get(6, 0, "memory")


def test_a_missing_snapshot_is_named(disk):
    with pytest.raises(SnapshotError, match="step-000000000008.npz` is not there"):
        disk.get(8, 0, "memory")


def test_a_full_disk_is_named_and_leaves_no_part(disk, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    disk.put(4, 0, "memory", 1.0, 8)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="`.*step-0*5.npz` cannot be written: No"):
        disk.put(5, 1, "memory", 2.0, 8)
    monkeypatch.undo()
    files = sorted(os.listdir(disk.path))
    assert files == ["lock", "record.npz", "step-000000000004.npz"]


def test_a_read_only_directory_is_named(tmp_path, monkeypatch):
    real = os.open

    def refuse(path, flags, mode=0o777):
        # As a read-only directory does, except to root, who may write anywhere.
        if flags & os.O_CREAT:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(path, flags, mode)

    (tmp_path / "run").mkdir(mode=0o555)
    monkeypatch.setattr("retape.storage._file_lock.os.open", refuse)
    with pytest.raises(StoreError, match="run` cannot be used: Permission denied"):
        DiskStore(tmp_path / "run").open("test")


def test_a_directory_that_refuses_writes_is_named(disk, monkeypatch):
    def refuse(self, target):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("pathlib.Path.replace", refuse)
    with pytest.raises(
        StoreError, match="cannot be written: Permission denied. Correct"
    ):
        disk.put(5, 1, "memory", 2.0, 8)
    assert sorted(os.listdir(disk.path)) == ["lock", "record.npz"]


def test_an_unreadable_file_is_named(disk):
    file_of(disk, 5).mkdir()
    with pytest.raises(StoreError, match="cannot be read: Is a directory"):
        disk.get(5, 0, "memory")


def test_the_disk_store_keeps_to_its_capacities(tmp_path):
    store = DiskStore(tmp_path, capacity=1)
    store.open("test")
    store.put(0, 0, "memory", 1.0, 8)
    with pytest.raises(StoreError, match="would be snapshot 2 in .* `capacity=1`"):
        store.put(1, 1, "memory", 1.0, 8)
    store.close()
    store = DiskStore(tmp_path / "b", capacity_bytes=10)
    store.open("test")
    store.put(0, 0, "memory", 1.0, 8)
    with pytest.raises(StoreError, match="step 1 needs 8 B beside the 8 B in"):
        store.put(1, 1, "memory", 1.0, 8)
    store.close()


def test_dropped_files_do_not_exceed_the_capacity(tmp_path):
    """They wait for the next record, unless their room is needed before."""
    store = DiskStore(tmp_path, capacity=3, every=1e9)
    store.open("test")
    for step in range(30):
        if step >= 2:
            store.drop(step - 2, step % 2, "memory")
        store.put(step, step % 2, "memory", 1.0, 8)
        assert len(list(tmp_path.glob("step-*.npz"))) == min(step + 1, 3)
        assert store.nbytes == 8 * min(step + 1, 2)
    store.close()


def test_the_bytes_on_disk_are_known_to_the_next_process(tmp_path):
    store = DiskStore(tmp_path)
    store.open("test")
    for step in (0, 4, 9):
        store.put(step, step, "memory", np.zeros(10), 80)
    store.close()
    later = DiskStore(tmp_path, capacity_bytes=170)
    later.open("test")
    file_of(later, 9).write_bytes(b"damaged")
    later.keep_only({0, 4, 9})
    assert later.nbytes == 160
    with pytest.raises(StoreError, match="needs 80 B beside the 160 B in"):
        later.put(12, 1, "memory", np.zeros(10), 80)
    later.close()


def test_a_disk_that_fills_up_is_freed_of_what_was_dropped(disk, monkeypatch):
    """The write is tried again without the files that only a crash would need."""
    real = os.fsync

    def full(handle):
        if file_of(disk, 4).exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    disk.put(4, 0, "memory", 1.0, 8)
    disk.drop(4, 0, "memory")
    monkeypatch.setattr(os, "fsync", full)
    disk.put(5, 0, "memory", 2.0, 8)
    assert disk.steps() == {5}


def test_files_of_others_are_left_alone(tmp_path):
    names = ["film.part", "step-7.npz", "step-x.part", "tape-000000000001.npy", "a.npz"]
    for name in names:
        (tmp_path / name).write_text("mine")
    ours = ["step-000000000003.part", "record.part", "tape-000000000003.part"]
    for name in ours:
        (tmp_path / name).write_text("half a file")
    store = DiskStore(tmp_path)
    store.open("test")
    assert store.steps() == set()
    store.clear()
    store.close()
    assert sorted(os.listdir(tmp_path)) == sorted([*names, "lock"])


def test_another_run_is_refused_before_the_first_stage_is_reversed(tmp_path):
    store = DiskStore(tmp_path)
    assert store.open("test") is None
    store.put(0, 0, "memory", 1.0, 8)
    store.close()
    with pytest.raises(StoreError, match="holds another run, `test`"):
        DiskStore(tmp_path).open("other")


def test_a_record_frees_what_was_dropped(disk):
    disk.put(0, 0, "memory", 1.0, 8)
    disk.put(1, 1, "memory", 1.0, 8)
    disk.drop(1, 1, "memory")
    assert disk.steps() == {0, 1} and disk.record_due()
    disk.record(Record(9, 5, (np.ones(2), 3), "test"))
    assert disk.steps() == {0}
    disk.close()
    again = DiskStore(disk.path)
    record = again.open("test")
    assert record is not None and (record.length, record.left) == (9, 5)
    assert fingerprint(record.cotangent) == fingerprint((np.ones(2), 3))
    again.clear()
    assert again.steps() == set()
    again.close()
    assert again.open("test") is None
    again.close()


def test_a_damaged_record_is_named(disk):
    disk.close()
    for name in ("record.npz", "record-before.npz"):
        (disk.path / name).write_bytes(b"x")
    message = (
        "has no record of its run that can be read .*record-before.npz` is not a snap.*"
        "and no snapshot: nothing is left to go on from. Call `clear"
    )
    with pytest.raises(StoreError, match=message):
        disk.open("test")
    # The directory is given up: it can be opened again once the files are removed.
    disk.clear()
    again = DiskStore(disk.path)
    assert again.open("test") is None
    again.close()


def test_without_a_record_the_snapshots_tell_whose_run_it_is(disk):
    disk.put(0, 0, "memory", 1.0, 8)
    disk.put(4, 1, "memory", 2.0, 8)
    disk.close()
    (disk.path / "record.npz").write_bytes(b"x")
    with pytest.raises(StoreError, match="holds another run, `test`, and this .*`oth"):
        DiskStore(disk.path).open("other")
    (disk.path / "step-000000000004.npz").write_bytes(b"x")
    again = DiskStore(disk.path)
    with pytest.warns(RetapeWarning, match="The run goes on from its snapshots"):
        assert again.open("test") is None
    assert again.get(0, 0, "memory") == 1.0
    again.close()
    # It has a record of its own again; with no whole snapshot that would be all.
    assert again.open("test") is not None
    again.close()
    (disk.path / "record.npz").write_bytes(b"x")
    (disk.path / "step-000000000000.npz").write_bytes(b"x")
    with pytest.raises(StoreError, match="and no snapshot: nothing is left"):
        again.open("test")


@pytest.mark.parametrize("damage", [b"", b"x", bytes(3000)])
def test_a_damaged_record_costs_the_work_since_the_one_before(disk, damage):
    disk.record(Record(9, 5, 1.0, "test"))
    disk.record(Record(9, 3, 2.0, "test"))
    disk.close()
    (disk.path / "record.npz").write_bytes(damage)
    again = DiskStore(disk.path)
    assert again.open("test") == Record(9, 5, 1.0, "test")
    # The damaged file must not take the place of the good one.
    again.record(Record(9, 2, 4.0, "test"))
    again.close()
    assert again.open("test") == Record(9, 2, 4.0, "test")
    again.close()
    (disk.path / "record.npz").unlink()
    assert again.open("test") == Record(9, 5, 1.0, "test")
    again.close()


def test_a_second_process_is_refused(disk):
    code = (
        "import sys, retape\n"
        "try:\n    retape.DiskStore(sys.argv[1]).open('test')\n"
        "except retape.StoreError as error:\n    print(error)"
    )
    command = [sys.executable, "-c", code, os.fspath(disk.path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "is in use by another process, or another store of" in done.stdout
    disk.close()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == ""


def test_a_snapshot_larger_than_the_memory_goes_to_the_disk(tmp_path):
    memory = MemoryStore(capacity=2, capacity_bytes=100)
    store = TieredStore(memory, DiskStore(tmp_path, capacity=2))
    store.open("test")
    store.put(0, 0, "memory", "large", 101)
    store.put(1, 1, "memory", "small", 60)
    store.put(2, 2, "memory", "no room for it", 41)
    assert store.steps() == {0, 2} and len(memory) == 1
    store.put(3, 3, "memory", "small", 40)
    assert len(memory) == 2 and memory.nbytes == 100
    with pytest.raises(StoreError, match="step 4 would be snapshot 3 in .*capacity=2"):
        store.put(4, 4, "memory", "neither", 1)
    store.drop(1, 1, "memory")
    store.put(4, 4, "memory", "freed", 60)
    assert store.get(4, 4, "memory") == "freed" and store.steps() == {0, 2}
    store.close()


def test_memory_comes_first_and_is_lost_with_its_process(tmp_path):
    store = TieredStore(MemoryStore(capacity=1), DiskStore(tmp_path))
    store.open("test")
    store.put(0, 0, "memory", 1.0, 8)
    store.put(4, 1, "memory", 2.0, 8)
    store.put(8, 0, "disk", 3.0, 8)
    assert store.steps() == {4, 8}
    assert (store.peak_snapshots, store.peak_bytes) == (3, 24)
    store.close()
    later = TieredStore(MemoryStore(capacity=1), DiskStore(tmp_path))
    later.open("test")
    assert later.get(4, 1, "memory") == 2.0
    with pytest.raises(SnapshotError, match="step 0 was in memory when its process"):
        later.get(0, 0, "memory")
    later.close()


class Windows:
    """Stands for `msvcrt`: one byte of a file can be locked, by one process."""

    LK_NBLCK = 2

    def __init__(self):
        self.locked = False

    def locking(self, handle, mode, count):
        assert os.fstat(handle) and (mode, count) == (2, 1)
        if self.locked:
            raise PermissionError(errno.EACCES, "Permission denied")
        self.locked = True


def test_windows_has_a_lock_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", Windows())
    store = DiskStore(tmp_path)
    store.open("test")
    store.put(3, 0, "memory", np.arange(3.0), 24)
    with pytest.raises(StoreError, match="in use by another process, or another"):
        DiskStore(tmp_path).open("test")
    assert store.get(3, 0, "memory").tolist() == [0.0, 1.0, 2.0]
    store.close()


def test_a_platform_without_locks_is_refused(tmp_path, monkeypatch):
    for name in ("fcntl", "msvcrt"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(StoreError, match="neither `fcntl` nor `msvcrt` for a"):
        DiskStore(tmp_path).open("test")


def test_a_directory_that_cannot_be_flushed(disk, monkeypatch):
    real = os.open

    def refuse(path, flags, mode=0o777):
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(path, flags, mode)

    monkeypatch.setattr("retape.storage._file_lock.os.open", refuse)
    with pytest.raises(StoreError, match="cannot be written: Permission denied"):
        disk.put(5, 0, "memory", 1.0, 8)
    # Windows cannot open a directory, and need not.
    monkeypatch.setattr("retape.storage._file_lock.os.name", "nt")
    disk.put(5, 0, "memory", 1.0, 8)
    assert disk.steps() == {5}


def test_pack_is_for_capsules_and_not_for_tapes(tmp_path):
    store = DiskStore(tmp_path, pack=sorted, unpack=set)
    store.open("test")
    store.put(1, 0, "memory", {3, 1}, 8)
    store.put(2, 1, "memory", (3.0, [1]), 8, tape=True)
    assert store.steps() == {1} and store.has(2, tape=True) and not store.has(2)
    assert store.get(2, 1, "memory", tape=True) == (3.0, [1])
    store.keep_only({1})
    assert not store.has(2, tape=True)
    with pytest.raises(SnapshotError, match="tape-0*2.npz` is not there"):
        store.get(2, 1, "memory", tape=True)
    store.close()

"""Files and processes that a store must not trust, and what it says of them."""

import json
import os
import subprocess
import sys
import threading
import zipfile

import numpy as np
import pytest

import retape
from retape import DiskStore, MemoryStore, SnapshotError, StoreError, TieredStore
from retape.driver import ToyMachine, run
from retape.storage import Record

ToyCapsule = type(ToyMachine(1).start())


@pytest.fixture
def disk(tmp_path):
    made = DiskStore(tmp_path / "run", every=0)
    made.open("test")
    yield made
    made.close()


def file_of(disk, step):
    return disk.path / f"step-{step:012d}.npz"


def rewritten(disk, change, compression=zipfile.ZIP_STORED):
    """The file of step 5 with its JSON text changed."""
    disk.put(5, 0, "memory", np.arange(3.0), 24)
    with np.load(file_of(disk, 5)) as members:
        arrays = {name: members[name] for name in members.files}
    meta = json.loads(arrays["tree"].tobytes())
    change(meta, arrays)
    arrays["tree"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    save = np.savez if compression == zipfile.ZIP_STORED else np.savez_compressed
    save(file_of(disk, 5), **arrays)


def test_a_compressed_file_is_not_unpacked(disk):
    """A few bytes could claim any amount of memory."""

    def bomb(meta, arrays):
        arrays["array0"] = np.zeros(10**7)

    rewritten(disk, bomb, zipfile.ZIP_DEFLATED)
    assert file_of(disk, 5).stat().st_size < 10**6
    with pytest.raises(SnapshotError, match="is not a snapshot of this library, or is"):
        disk.get(5, 0, "memory")


@pytest.mark.parametrize(
    "tree",
    [
        {"a": 7, "s": False},
        {"a": -1, "s": False},
        {"p": [{"v": 1}], "k": "os:system"},
        {"p": [], "k": "subprocess:Popen", "g": "o", "e": []},
        {"p": [], "k": "retape.nowhere:Class", "g": "n", "e": None},
        {"layout": [{"r": 0, "o": 99, "n": [3], "s": [8], "d": "<f8"}], "tree": {}},
        {"layout": [{"r": 0, "o": 0, "n": [3], "s": [8], "d": "|O"}], "tree": {}},
        {"c": [1]},
        {"x": 1},
        [],
        None,
    ],
)
def test_a_crafted_tree_is_refused(disk, tree):
    def craft(meta, arrays):
        meta["tree"] = tree

    rewritten(disk, craft)
    with pytest.raises(SnapshotError) as found:
        disk.get(5, 0, "memory")
    assert "pickle" not in str(found.value) and "trust" not in str(found.value)


def test_a_tree_that_nests_without_end_is_refused(disk):
    disk.put(5, 0, "memory", 1.0, 8)
    text = b'{"l": [' * 100_000
    np.savez(file_of(disk, 5), tree=np.frombuffer(text, np.uint8))
    with pytest.raises(SnapshotError, match="is damaged"):
        disk.get(5, 0, "memory")


@pytest.mark.parametrize("kind", ["pickle", "header", "zeros"])
def test_no_message_advises_to_load_a_file_unsafely(disk, kind):
    file = file_of(disk, 5)
    if kind == "pickle":
        np.savez(file, tree=np.array([object()]), allow_pickle=True)
    elif kind == "header":
        text = b"\x93NUMPY\x01\x00" + (60_000).to_bytes(2, "little") + b" " * 60_000
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("tree.npy", text)
    else:
        file.write_bytes(bytes(5000))
    with pytest.raises(SnapshotError, match="Remove the file; its state is") as found:
        disk.get(5, 0, "memory")
    assert "pickle" not in str(found.value) and "trust" not in str(found.value)
    assert found.value.__suppress_context__


@pytest.mark.parametrize("name", ["step-000000000005.part", "record.part"])
def test_a_link_in_the_way_does_not_lead_to_a_file_of_others(disk, tmp_path, name):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (disk.path / name).symlink_to(precious)
    disk.put(5, 0, "memory", 1.0, 8)
    disk.record(Record(9, 5, 1.0, "test"))
    assert precious.read_text() == "mine" and disk.get(5, 0, "memory") == 1.0


def test_a_snapshot_or_a_lock_that_is_a_link_is_refused(disk, tmp_path):
    disk.put(5, 0, "memory", 1.0, 8)
    elsewhere = tmp_path / "elsewhere"
    file_of(disk, 5).rename(elsewhere)
    file_of(disk, 5).symlink_to(elsewhere)
    with pytest.raises(SnapshotError, match="is a symbolic link, and this library mak"):
        disk.get(5, 0, "memory")
    other = tmp_path / "other"
    other.mkdir()
    (other / "lock").symlink_to(tmp_path / "precious")
    with pytest.raises(StoreError, match="other` cannot be used: "):
        DiskStore(other).open("test")
    assert not (tmp_path / "precious").exists()


FORKS = """
import os, sys, time, retape
disk = retape.DiskStore(sys.argv[1])
disk.open("test")
read, write = os.pipe()
child = os.fork()
if child == 0:
    try:
        disk.put(5, 0, "memory", 1.0, 8)
    except retape.StoreError as error:
        os.write(write, str(error).encode())
    os.close(write)
    time.sleep(60)
    os._exit(0)
os.close(write)
print(os.read(read, 1000).decode())
# The child lives on, as a worker of a pool may; the lock is its parent's alone.
disk.close()
other = retape.DiskStore(sys.argv[1])
other.open("test")
print(sorted(other.steps()))
os.kill(child, 9)
os.waitpid(child, 0)
"""


def test_a_forked_child_neither_uses_a_store_nor_keeps_its_lock(tmp_path):
    command = [sys.executable, "-c", FORKS, os.fspath(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "in use by the process that this one was forked from" in done.stdout
    assert done.stdout.endswith("\n[]\n")


@pytest.mark.parametrize("kind", ["memory", "disk", "tiered"])
@pytest.mark.parametrize("place", ["thread", "step"])
def test_one_store_is_not_used_by_two_runs_at_once(tmp_path, kind, place):
    """With one schedule they would read each other's states without noticing."""
    disk = DiskStore(
        tmp_path,
        pack=lambda capsule: (capsule.step, capsule.value),
        unpack=lambda tree: ToyCapsule(*tree),
    )
    stores = {"memory": MemoryStore(), "disk": disk}
    store = stores.get(kind, TieredStore(MemoryStore(capacity=1), disk))
    plan, told = retape.fixed_space(snapshots=2), []

    def second():
        try:
            run(ToyMachine(9, x0=5), plan, store=store)
        except StoreError as error:
            told.append(str(error))

    class First(ToyMachine):
        def reverse(self, capsule, steps, cotangent):
            if cotangent is None and place == "thread":
                other = threading.Thread(target=second)
                other.start()
                other.join()
            elif cotangent is None:
                second()
            return super().reverse(capsule, steps, cotangent)

    expected = ToyMachine(9).reverse(ToyCapsule(0, 3), 9, None)
    assert run(First(9), plan, store=store, label="it").result == expected
    where = "in another thread" if place == "thread" else "that this run is a part of"
    assert len(told) == 1 and where in told[0] and "is in use by another run" in told[0]
    # It serves again afterwards.
    assert run(ToyMachine(9), plan, store=store, label="it").result == expected


def test_an_open_store_is_not_opened_again(disk):
    with pytest.raises(StoreError, match="is in use by another run of this store"):
        disk.open("test")
    disk.close()
    disk.open("test")


def test_a_run_goes_on_from_the_older_record_where_the_newer_one_is_damaged(tmp_path):
    """Snapshots that were removed since are made again."""

    class Killed(ToyMachine):
        def reverse(self, capsule, steps, cotangent):
            if capsule.step == killed_at:
                raise KeyError
            return super().reverse(capsule, steps, cotangent)

    def store():
        return DiskStore(
            tmp_path / str(killed_at),
            every=0,
            pack=lambda capsule: (capsule.step, capsule.value),
            unpack=lambda tree: ToyCapsule(*tree),
        )

    plan = retape.fixed_space(snapshots=4)
    expected = ToyMachine(40).reverse(ToyCapsule(0, 3), 40, None)
    for killed_at in (35, 20, 3, 0):
        with pytest.raises(KeyError):
            run(Killed(40), plan, store=store(), label="it")
        record = tmp_path / str(killed_at) / "record.npz"
        record.write_bytes(bytes(record.stat().st_size))
        machine = ToyMachine(40)
        outcome = run(machine, plan, store=store(), label="it")
        assert outcome.result == expected and outcome.report.resumed
        # One stage more than was left: no more of the work that was done is lost.
        assert outcome.report.reverses == killed_at + 2


def test_numpys_integers_are_capacities(tmp_path):
    for store in (MemoryStore(capacity=np.int64(2)), DiskStore(tmp_path, np.int8(2))):
        assert store.capacity == 2 and type(store.capacity) is int


@pytest.mark.parametrize("killed_at", [None, 30, 12])
def test_a_run_without_any_record_goes_on_from_its_snapshots(tmp_path, killed_at):
    """In its first sweep it has one record; later it has two, which may both be bad."""

    class Killed(ToyMachine):
        def reverse(self, capsule, steps, cotangent):
            if killed_at is None or capsule.step == killed_at:
                raise KeyError
            return super().reverse(capsule, steps, cotangent)

    def store():
        return DiskStore(
            tmp_path,
            every=0,
            pack=lambda capsule: (capsule.step, capsule.value),
            unpack=lambda tree: ToyCapsule(*tree),
        )

    plan = retape.fixed_space(snapshots=4)
    expected = ToyMachine(40).reverse(ToyCapsule(0, 3), 40, None)
    with pytest.raises(KeyError):
        run(Killed(40), plan, store=store(), label="it")
    for record in tmp_path.glob("record*.npz"):
        record.write_bytes(record.read_bytes()[:-40])
    with pytest.warns(retape.RetapeWarning, match="goes on from its snapshots"):
        outcome = run(ToyMachine(40), plan, store=store(), label="it")
    assert outcome.result == expected and outcome.report.resumed
    whole = run(ToyMachine(40), plan).report
    assert outcome.report.reverses == whole.reverses
    assert outcome.report.advances < whole.advances


def test_a_folder_in_the_place_of_a_snapshot_is_named(disk):
    (disk._directory.path / "step-000000000003.npz").mkdir()
    with pytest.raises(StoreError, match="step-000000000003.npz` cannot be removed"):
        disk.keep_only(set())
    disk.close()

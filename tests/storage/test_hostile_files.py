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
from retape.storage import Place, Record, fingerprint
from tests.driver.toys import Crash, Watched, by_itself, ends_at, toys_at


@pytest.fixture
def disk(tmp_path):
    made = DiskStore(tmp_path / "run", every=0)
    made.open("test")
    made.put(Place(5, 0), np.arange(40.0), 320)
    yield made
    made.close()


def file_of(disk, step=5):
    return disk.path / f"step-{step:012d}.npz"


# What a file may have become: it is given whole, of step 5. -----------------------


def cut(part):
    def damage(file):
        whole = file.read_bytes()
        file.write_bytes(whole[: int(part * len(whole))])

    return damage


def changed(change, save=np.savez):
    """An archive of the same names with other contents."""

    def damage(file):
        with np.load(file) as members:
            arrays = {name: members[name] for name in members.files}
        meta = json.loads(arrays["tree"].tobytes())
        change(meta, arrays)
        arrays["tree"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
        save(file, **arrays)

    return damage


def crafted(tree):
    return changed(lambda meta, arrays: meta.update(tree=tree))


def nudge(meta, arrays):
    arrays["array0"][2] += 1e-7


def bomb(meta, arrays):
    """A few bytes could claim any amount of memory."""
    arrays["array0"] = np.zeros(10**7)


def another_archive(name, text):
    def damage(file):
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(name, text)

    return damage


def nesting(file):
    np.savez(file, tree=np.frombuffer(b'{"l": [' * 100_000, np.uint8))


def pickled(file):
    np.savez(file, tree=np.array([object()]), allow_pickle=True)


def a_link(file):
    file.rename(file.parent.parent / "elsewhere")
    file.symlink_to(file.parent.parent / "elsewhere")


HEADER = b"\x93NUMPY\x01\x00" + (60_000).to_bytes(2, "little") + b" " * 60_000
REMOVE = "Remove the file; its state is"
FOREIGN = "is not a snapshot of this library"
LAYOUT = {"r": 0, "o": 0, "n": [3], "s": [8], "d": "<f8"}
TREES = [
    {"a": 7, "s": False},
    {"a": -1, "s": False},
    {"p": [{"v": 1}], "k": "os:system"},
    {"p": [], "k": "subprocess:Popen", "g": "o", "e": []},
    {"p": [], "k": "retape.nowhere:Class", "g": "n", "e": None},
    {"layout": [LAYOUT | {"o": 99}], "tree": {}},
    {"layout": [LAYOUT | {"d": "|O"}], "tree": {}},
    {"c": [1]},
    {"x": 1},
    [],
    None,
]
DAMAGES = [
    *(
        (cut(size), "step-000000000005.npz.* damaged")
        for size in (0, 0.001, 0.1, 0.5, 0.999)
    ),
    *((crafted(tree), "step-0*5.npz|is not there, or is not a da") for tree in TREES),
    (changed(nudge), "do not match their checksum"),
    (changed(bomb, np.savez_compressed), f"{FOREIGN}, or is"),
    (lambda file: file.write_text("hello"), FOREIGN),
    (lambda file: file.write_bytes(bytes(5000)), REMOVE),
    (lambda file: np.savez(file, a=np.zeros(3)), FOREIGN),
    (another_archive("tree", "x"), FOREIGN),
    (another_archive("tree.npy", HEADER), REMOVE),
    (nesting, "is damaged"),
    (pickled, REMOVE),
    (a_link, "is a symbolic link, and this library mak"),
    (lambda file: file.unlink(), "step-000000000005.npz` is not there"),
]


@pytest.mark.parametrize(("damage", "said"), DAMAGES)
def test_what_is_no_whole_snapshot_of_ours_is_named_and_never_trusted(
    disk, damage, said
):
    """No message advises to load it in another way."""
    damage(file_of(disk))
    assert not file_of(disk).exists() or file_of(disk).stat().st_size < 10**6
    with pytest.raises(SnapshotError, match=said) as found:
        disk.get(Place(5, 0))
    assert "pickle" not in str(found.value) and "trust" not in str(found.value)
    assert found.value.__suppress_context__ or found.value.__context__ is None


def test_every_flipped_bit_is_caught_or_harmless(disk, seeded):
    whole, caught = file_of(disk).read_bytes(), 0
    for place in seeded.sample(range(8 * len(whole)), 200):
        data = bytearray(whole)
        data[place // 8] ^= 1 << place % 8
        file_of(disk).write_bytes(bytes(data))
        try:
            back = disk.get(Place(5, 0))
        except SnapshotError:
            caught += 1
        else:
            assert fingerprint(back) == fingerprint(np.arange(40.0))
    assert caught > 100


def test_a_format_of_another_version_and_another_step_are_named(disk, monkeypatch):
    file_of(disk).rename(file_of(disk, 6))
    with pytest.raises(SnapshotError, match="belongs to another run or step"):
        disk.get(Place(6, 0))
    with monkeypatch.context() as older:
        older.setattr("retape.storage._codec.FORMAT", "retape-0")
        disk.put(Place(7, 1), 1.0, 8)
    with pytest.raises(SnapshotError, match="its format is 'retape-0'"):
        disk.get(Place(7, 1))


def test_a_folder_in_the_place_of_a_snapshot_is_named(disk):
    file_of(disk, 3).mkdir()
    with pytest.raises(StoreError, match="cannot be read: Is a directory"):
        disk.get(Place(3, 0))
    with pytest.raises(StoreError, match="step-000000000003.npz` cannot be removed"):
        disk.keep_only(set())


@pytest.mark.parametrize("name", ["step-000000000007.part", "record.part"])
def test_a_link_in_the_way_does_not_lead_to_a_file_of_others(disk, tmp_path, name):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (disk.path / name).symlink_to(precious)
    disk.put(Place(7, 1), 1.0, 8)
    disk.record(Record(9, 5, 1.0, "test"))
    assert precious.read_text() == "mine" and disk.get(Place(7, 1)) == 1.0


def test_a_lock_that_is_a_link_is_refused(tmp_path):
    (tmp_path / "lock").symlink_to(tmp_path / "precious")
    with pytest.raises(StoreError, match="cannot be used: "):
        DiskStore(tmp_path).open("test")
    assert not (tmp_path / "precious").exists()


FORKS = """
import os, sys, time, retape
disk = retape.DiskStore(sys.argv[1])
disk.open("test")
read, write = os.pipe()
child = os.fork()
if child == 0:
    try:
        disk.put(retape.storage.Place(5, 0), 1.0, 8)
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


# Runs. ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "disk", "tiered"])
@pytest.mark.parametrize("place", ["thread", "step"])
def test_one_store_is_not_used_by_two_runs_at_once(tmp_path, kind, place):
    """With one schedule they would read each other's states without noticing."""
    disk = toys_at(tmp_path)
    stores = {"memory": MemoryStore(), "disk": disk}
    store = stores.get(kind, TieredStore(MemoryStore(capacity=1), disk))
    plan, told = retape.fixed_space(snapshots=2), []

    def second():
        try:
            run(ToyMachine(9, x0=5), plan, store=store)
        except StoreError as error:
            told.append(str(error))

    def begin_another(called, capsule, steps):
        if called == "reverse" and capsule.step == 8 and place == "thread":
            other = threading.Thread(target=second)
            other.start()
            other.join()
        elif called == "reverse" and capsule.step == 8:
            second()

    first = Watched(9, begin_another)
    expected = by_itself(9)
    assert run(first, plan, store=store, label="it").result == expected
    where = "in another thread" if place == "thread" else "that this run is a part of"
    assert len(told) == 1 and where in told[0] and "is in use by another run" in told[0]
    # It serves again afterwards.
    assert run(ToyMachine(9), plan, store=store, label="it").result == expected


# In its first sweep a run has one record; later it has two, which may both be bad.
@pytest.mark.parametrize("killed_at", [None, 30, 12, 3, 0])
@pytest.mark.parametrize("records", ["record.npz", "record*.npz"])
def test_a_run_whose_record_is_damaged_goes_on_from_the_older_one_or_is_refused(
    tmp_path, killed_at, records
):
    plan, killed = retape.fixed_space(snapshots=4), ends_at("reverse", killed_at)
    whole = run(ToyMachine(40), plan)
    with pytest.raises(Crash):
        run(Watched(40, killed), plan, store=toys_at(tmp_path), label="it")
    older = (tmp_path / "record-before.npz").exists() and records == "record.npz"
    for record in tmp_path.glob(records):
        record.write_bytes(record.read_bytes()[:-40])
    store = toys_at(tmp_path)
    if not older:
        with pytest.raises(StoreError, match="no record of its run that can be read"):
            run(ToyMachine(40), plan, store=store, label="it")
        store.clear()
        assert run(ToyMachine(40), plan, store=store, label="it").result == whole.result
        return
    outcome = run(ToyMachine(40), plan, store=store, label="it")
    assert outcome.result == whole.result and outcome.report.resumed
    # One stage more than was left: no more of the work that was done is lost.
    assert outcome.report.reverses == killed_at + 2


@pytest.mark.parametrize("records", ["record.npz", "record*.npz"])
def test_a_snapshot_in_the_place_of_a_record_is_none(tmp_path, records):
    plan = retape.fixed_space(snapshots=4)
    with pytest.raises(Crash):
        killed = Watched(40, ends_at("reverse", 12))
        run(killed, plan, store=toys_at(tmp_path), label="it")
    snapshot = min(tmp_path.glob("step-*.npz")).read_bytes()
    for record in tmp_path.glob(records):
        record.write_bytes(snapshot)

    def again():
        return run(ToyMachine(40), plan, store=toys_at(tmp_path), label="it")

    if records == "record.npz":
        assert again().result == by_itself(40)
        return
    with pytest.raises(StoreError, match="is a snapshot and no record"):
        again()


@pytest.mark.parametrize("room", [{"capacity": 2}, {"capacity_bytes": "100 B"}])
def test_a_run_is_not_taken_up_where_less_has_room(tmp_path, room):
    def call(stop=-1, **options):
        def back(x, k, g):
            if k == stop:
                raise Crash
            return 1.1 * g

        return retape.adjoint(
            retape.Program(lambda x, k: 1.1 * x, back),
            np.ones(4),
            seed=np.ones_like,
            steps=60,
            plan=retape.fixed_space(snapshots=5),
            store=retape.DiskStore(tmp_path, every=0, **options),
            key="it",
        )

    with pytest.raises(Crash):
        call(stop=50)
    with pytest.raises(StoreError, match="holds 5 snapshots of 160 B"):
        call(**room)
    found = call(capacity=5, capacity_bytes=160)
    assert found.report.resumed and found.report.peak_snapshots == 5
    assert np.array_equal(found.cotangent, call().cotangent)


def test_a_directory_is_one_of_this_machine_and_has_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    def of_adjoint(path):
        program = retape.Program(lambda x, k: 2 * x, lambda x, k, g: 2 * g)
        retape.adjoint(program, 1.0, seed=lambda x: 1.0, steps=3, store=path)

    for path in ("s3://bucket/run", "file:///tmp/run", ""):
        for make in (retape.DiskStore, of_adjoint):
            with pytest.raises(StoreError, match="`path="):
                make(path)
    assert not list(tmp_path.iterdir())
    store = retape.DiskStore("~/run")
    store.open("it")
    store.close()
    assert (tmp_path / "home" / "run" / "record.npz").exists()


@pytest.mark.parametrize("damaged", [0, 1, 4])
def test_a_run_to_an_unknown_end_goes_on_from_the_last_snapshot_that_is_whole(
    tmp_path, damaged
):
    plan = retape.fixed_space(snapshots=4)
    machine = ToyMachine(40, tells_length=False)
    killed = Watched(40, ends_at("advance", 30), tells_length=False)
    whole = run(machine, plan)
    with pytest.raises(Crash):
        run(killed, plan, store=toys_at(tmp_path), label="it")
    steps = [int(file.stem[5:]) for file in sorted(tmp_path.glob("step-*.npz"))]
    for step in steps[len(steps) - damaged :]:
        file = tmp_path / f"step-{step:012d}.npz"
        file.write_bytes(file.read_bytes()[:-40])
    outcome = run(machine, plan, store=toys_at(tmp_path), label="it")
    assert outcome.result == whole.result
    # What lies before that snapshot is not run again.
    less = whole.report.advances - outcome.report.advances
    assert less == steps[len(steps) - 1 - damaged]

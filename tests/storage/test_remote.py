"""Stores on the file systems of fsspec."""

import fsspec
import numpy as np
import pytest

import retape
from retape import DiskStore, MemoryStore, SnapshotError, StoreError, TieredStore
from retape.storage import Record, RemoteStore


@pytest.fixture(params=["memory", "file"])
def url(request, tmp_path):
    if request.param == "file":
        yield f"file://{tmp_path}/run"
        return
    yield f"memory:///{tmp_path.name}/run"
    fsspec.filesystem("memory").store.clear()


def call(store, stops=None):
    def step(x, k):
        if k == stops:
            raise KeyboardInterrupt
        return 3.9 * x * (1.0 - x) + 1e-3 * np.sin(k)

    return retape.adjoint(
        retape.Program(step, lambda x, k, g: 3.9 * (1.0 - 2.0 * x) * g),
        np.linspace(0.11, 0.12, 50),
        seed=np.ones_like,
        steps=60,
        plan=retape.fixed_space(snapshots=4, stage=3),
        store=store,
        key="a run",
    )


def test_the_disk_of_a_run_may_be_lost(url, tmp_path):
    """A job that is queued again comes to another machine: the far part has it."""
    import shutil

    whole = call(MemoryStore())

    def store():
        near = DiskStore(tmp_path / "near", capacity=1, every=0)
        return TieredStore(near, RemoteStore(url, every=0))

    with pytest.raises(KeyboardInterrupt):
        call(store(), 57)
    shutil.rmtree(tmp_path / "near")
    found = call(store())
    assert found.report.resumed
    assert found.cotangent.tobytes() == whole.cotangent.tobytes()


def test_the_last_that_comes_has_the_run(url):
    first, second = RemoteStore(url), RemoteStore(url)
    first.open("test")
    first.put(0, 0, "disk", 1.5, 8)
    second.open("test")
    assert second.get(0, 0, "disk") == 1.5
    with pytest.raises(StoreError, match="was taken over by process .* End this one"):
        first.put(1, 1, "disk", 2.5, 8)
    second.put(1, 1, "disk", 2.5, 8)
    with pytest.raises(StoreError, match="in use by another run of this store"):
        second.open("test")


def test_it_can_go_back_to_the_record_before(url):
    store = RemoteStore(url)
    store.open("test")
    for left in (8, 5):
        store.record(Record(9, left, (1.5,), "test"))
    found = store.rewind()
    assert found is not None and found.left == 8


def test_what_is_torn_is_found(url):
    store = RemoteStore(url)
    store.open("test")
    store.put(3, 0, "disk", np.arange(9.0), 72)
    fs, path = store._directory.fs, store._directory.path
    fs.pipe_file(f"{path}/step-000000000003.npz", b"half")
    with pytest.raises(SnapshotError, match="step-000000000003.npz.* is damaged"):
        store.get(3, 0, "disk")
    fs.rm_file(f"{path}/step-000000000003.npz")
    with pytest.raises(SnapshotError, match="is not there"):
        store.get(3, 0, "disk")


def test_what_the_service_refuses_is_named(url, monkeypatch):
    store = RemoteStore(url)
    store.open("test")
    fs = store._directory.fs

    def refuse(path, data, **options):
        raise RuntimeError("quota exceeded")

    monkeypatch.setattr(fs, "pipe_file", refuse)
    with pytest.raises(StoreError, match=r"written \(RuntimeError: quota exceeded\)"):
        store.put(3, 0, "disk", 1.5, 8)
    with pytest.raises(StoreError, match="`path='nothing://x'` cannot be opened"):
        RemoteStore("nothing://x")

"""Stores on the file systems of fsspec."""

import shutil

import fsspec
import numpy as np
import pytest

from retape import DiskStore, SnapshotError, StoreError, TieredStore
from retape.storage import Place, Record, RemoteStore
from tests.judges.core.test_stores import STEPS, gradient, plain_gradient


@pytest.fixture(params=["memory", "file"])
def url(request, tmp_path):
    if request.param == "file":
        yield f"file://{tmp_path}/run"
        return
    yield f"memory:///{tmp_path.name}/run"
    fsspec.filesystem("memory").store.clear()


def opened(url):
    store = RemoteStore(url)
    store.open("test")
    return store


def test_the_disk_of_a_run_may_be_lost(url, tmp_path):
    """A job that is queued again comes to another machine: the far part has it."""

    def call(stops=None):
        near = DiskStore(tmp_path / "near", capacity=1, every=0)
        return gradient(TieredStore(near, RemoteStore(url, every=0)), stops)

    with pytest.raises(KeyboardInterrupt):
        call(STEPS - 3)
    shutil.rmtree(tmp_path / "near")
    found = call()
    assert found.report.resumed
    assert found.cotangent.tobytes() == plain_gradient()


def test_the_last_that_comes_has_the_run(url):
    first = opened(url)
    first.put(Place(0, 0, "disk"), 1.5, 8)
    second = opened(url)
    assert second.get(Place(0, 0, "disk")) == 1.5
    with pytest.raises(StoreError, match="was taken over by process .* End this one"):
        first.put(Place(1, 1, "disk"), 2.5, 8)
    second.put(Place(1, 1, "disk"), 2.5, 8)
    with pytest.raises(StoreError, match="in use by another run of this store"):
        second.open("test")


def test_it_can_go_back_to_the_record_before(url):
    store = opened(url)
    for left in (8, 5):
        store.record(Record(9, left, (1.5,), "test"))
    found = store.rewind()
    assert found is not None and found.left == 8


def test_what_is_torn_is_found(url):
    store = opened(url)
    store.put(Place(3, 0, "disk"), np.arange(9.0), 72)
    fs, path = store._directory.fs, store._directory.path
    fs.pipe_file(f"{path}/step-000000000003.npz", b"half")
    with pytest.raises(SnapshotError, match="step-000000000003.npz.* is damaged"):
        store.get(Place(3, 0, "disk"))
    fs.rm_file(f"{path}/step-000000000003.npz")
    with pytest.raises(SnapshotError, match="is not there"):
        store.get(Place(3, 0, "disk"))


def test_what_the_service_refuses_is_named(url, monkeypatch):
    store = opened(url)
    fs = store._directory.fs

    def refuse(path, data, **options):
        raise RuntimeError("quota exceeded")

    monkeypatch.setattr(fs, "pipe_file", refuse)
    with pytest.raises(StoreError, match=r"written \(RuntimeError: quota exceeded\)"):
        store.put(Place(3, 0, "disk"), 1.5, 8)
    with pytest.raises(StoreError, match="`path='nothing://x'` cannot be opened"):
        RemoteStore("nothing://x")

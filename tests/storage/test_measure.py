"""What a store takes for a snapshot, measured: of any store, and refused of none."""

import pytest

import retape
from retape import MemoryStore, StoreError
from retape.storage import AsyncStore, CodecStore, measure


def test_what_cannot_be_is_refused(tmp_path):
    with pytest.raises(StoreError, match="`/nowhere/at/all` cannot be used"):
        measure("/nowhere/at/all")
    disk = retape.DiskStore(tmp_path)
    disk.open("a run")
    disk.close()
    with pytest.raises(StoreError, match="a measurement|holds a"):
        measure(retape.DiskStore(tmp_path))


def test_any_store_can_be_measured(tmp_path):
    behind = AsyncStore(retape.DiskStore(tmp_path / "run"))
    for store in (tmp_path, MemoryStore(), CodecStore(MemoryStore()), behind):
        speed = measure(store, nbytes="80 kB")
        assert speed.nbytes == 80_000 and speed.write > 0 and speed.read >= 0
        assert "78.2 KiB written in" in str(speed)
    assert not list((tmp_path / "run").glob("*.npz"))

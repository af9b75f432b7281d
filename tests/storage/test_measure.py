"""What a store takes for a snapshot, measured: of any store, and refused of none."""

import numpy as np
import pytest

import retape
from retape import MemoryStore, StoreError
from retape.storage import AsyncStore, CodecStore, measure


def test_what_cannot_be_is_refused(tmp_path):
    with pytest.raises(StoreError, match="`/nowhere/at/all` cannot be used"):
        measure("/nowhere/at/all")
    with pytest.raises(StoreError, match="`store=7` is not a store"):
        measure(7)  # pyright: ignore[reportArgumentType]
    retape.adjoint(
        retape.Program(lambda x, k: x, lambda x, k, g: g),
        1.0,
        seed=lambda x: x,
        steps=2,
        store=retape.DiskStore(tmp_path),
        key="a run",
    )
    with pytest.raises(StoreError, match="a measurement|holds a"):
        measure(retape.DiskStore(tmp_path))


def test_any_store_can_be_measured(tmp_path):
    for store in (
        tmp_path,
        MemoryStore(),
        CodecStore(MemoryStore()),
        AsyncStore(retape.DiskStore(tmp_path / "run")),
    ):
        speed = measure(store, nbytes="80 kB")
        assert speed.nbytes == 80_000 and speed.write > 0 and speed.read >= 0
        assert "78.2 KiB written in" in str(speed)
    assert np.asarray(list((tmp_path / "run").glob("*.npz"))).size == 0

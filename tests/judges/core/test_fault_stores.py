"""What stores do with numbers that are no numbers, and how much a folder holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import retape
from retape.storage import CodecStore, Place, bounded

CODECS: dict[str, Any] = {
    "lossless": "lossless",
    "float32": "float32",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "relative": bounded(relative=1e-3),
    "absolute": bounded(absolute=1e-3),
}
STATES: dict[str, Any] = {
    "infinite": [np.inf, 1.0, 2.0],
    "minus infinite": [-np.inf, 1.0, 2.0],
    "both": [np.inf, -np.inf, 0.0],
    "no number": [np.nan, 1.0, 2.0],
    "all of them": [np.inf, -np.inf, np.nan],
    "complex": [complex(np.inf, 1.0), complex(0.0, np.nan), 1j],
    "zero": [0.0, -0.0, 0.0],
    "tiny": [5e-324, 1e-310, 0.0],
    "empty": [],
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("state", STATES)
def test_a_codec_keeps_what_is_not_finite_and_does_not_warn(codec, state):
    given = np.array(STATES[state])
    store: CodecStore[Any] = CodecStore(retape.MemoryStore(), CODECS[codec])
    store.put(Place(0, 0), given, given.nbytes)
    found = store.get(Place(0, 0))
    for part in (np.real, np.imag):
        finite = np.isfinite(part(given))
        assert np.array_equal(
            part(found)[~finite], part(given)[~finite], equal_nan=True
        )
        assert np.allclose(part(found)[finite], part(given)[finite], 1e-2, 2e-3)
    assert 0.0 <= store.largest_error < 1.1


@pytest.mark.parametrize("every", [0.0, 1e9])
@pytest.mark.parametrize("stage", [1, 7])
def test_a_folder_holds_its_capacity_and_two_records(every, stage, tmp_path):
    """A record is the last state, a state and a cotangent, and there are two."""
    state, snapshots, most = np.ones(10_000), 6, 0

    def watch(progress: Any) -> None:
        nonlocal most
        sizes = [file.stat().st_size for file in tmp_path.iterdir()]
        most = max(most, sum(sizes))

    retape.adjoint(
        retape.Program(lambda x, k: 0.999 * x, lambda x, k, g: 0.999 * g),
        state,
        seed=np.copy,
        steps=60,
        plan=retape.fixed_space(snapshots=snapshots, stage=stage),
        store=retape.DiskStore(
            tmp_path, capacity_bytes=snapshots * state.nbytes, every=every
        ),
        progress=watch,
        key="it",
    )
    assert most <= (snapshots + 2 * 3) * state.nbytes + (snapshots + 2) * 2_000
    left = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert left <= 2 * 3 * state.nbytes + 4_000

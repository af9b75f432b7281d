"""Stores that work in the background: the same bits, the same promises."""

import os
import threading

import numpy as np
import pytest

import retape
from retape import DiskStore, MemoryStore, SnapshotError, StoreError, TieredStore
from retape.schedule import Restore
from retape.storage import AsyncStore, Place, Record
from tests.judges.core import programs
from tests.judges.core.test_plans import by_hand
from tests.programs import run_program
from tests.storage.files import Noted


def opened(store):
    store.open("test")
    return store


class Gated(DiskStore):
    """A disk whose writes wait until they are let through."""

    def __init__(self, path, **options):
        super().__init__(path, **options)
        self.gate, self.calls = threading.Semaphore(0), []

    def put(self, place, capsule, nbytes):
        self.gate.acquire()
        self.calls.append(("put", place.step))
        super().put(place, capsule, nbytes)

    def get(self, place):
        self.calls.append(("get", place.step))
        return super().get(place)


PLANS = {
    "states": retape.fixed_space(snapshots=4, stage=3),
    "tiers": retape.tiers(memory=2, disk=3, stage=2),
}


def call(store, plan, make=programs.in_place, n=80):
    program = make()
    found = run_program(
        program.step,
        program.reverse_step,
        program.x0,
        plan=PLANS[plan],
        store=store,
        steps=n,
        key="a run",
        **program.options,
    )
    right = by_hand(program, n)[2]
    assert np.allclose(program.array(found.cotangent), right, rtol=1e-12)
    return found


def test_a_write_does_not_keep_the_program_waiting(tmp_path):
    inner = Gated(tmp_path)
    store = opened(AsyncStore(inner, buffer=250))
    for slot in range(2):
        store.put(Place(slot, slot, "disk"), np.full(9, slot), 100)
    assert inner.calls == [] and store.nbytes == 200 and store.peak_buffer == 200
    third = threading.Thread(
        target=store.put, args=(Place(2, 2, "disk"), np.ones(9), 100)
    )
    third.start()
    third.join(0.1)
    assert third.is_alive()  # There is no room for it.
    inner.gate.release(3)
    third.join()
    assert store.get(Place(2, 2, "disk")).tolist() == [1.0] * 9
    assert store.peak_buffer == 200
    store.put(Place(3, 3, "disk"), np.ones(99), 900)  # Larger than the buffer: alone.
    inner.gate.release()
    store.close()
    assert [step for what, step in inner.calls if what == "put"] == [0, 1, 2, 3]


def test_what_is_read_next_is_read_ahead(tmp_path):
    """The schedule is known: after each read the next one begins."""
    store = Noted(DiskStore(tmp_path))
    call(store, "states")
    told = store.reads()
    assert len(told) > 10 and sum(told) > 0.6 * len(told)


def test_what_was_read_ahead_is_read_once_and_nobody_waits_for_all(
    tmp_path, monkeypatch
):
    """`isinstance` with a protocol asks for the peaks, which wait for all (3.11)."""
    flushes, reads, flush = [], [], AsyncStore.flush
    monkeypatch.setattr(AsyncStore, "flush", lambda s: (flushes.append(s), flush(s)))

    class Counted(DiskStore):
        def get(self, place):
            reads.append(place)
            return super().get(place)

    disk = AsyncStore(Counted(tmp_path))
    found = call(TieredStore(MemoryStore(capacity=2), disk), "tiers")
    schedule = PLANS["tiers"].schedule(80)
    far = [a for a in schedule if isinstance(a, Restore) and a.tier == "disk"]
    # What still waits to be written is not read at all.
    assert 0 < len(reads) <= len(far)
    assert len(flushes) < 10 < found.report.stores
    # They are asked for at the end, and nothing that was read ahead is lost.
    assert disk.peak_snapshots == 3


def test_a_read_overtakes_writes_and_a_damaged_file_is_repaired(tmp_path):
    inner = Gated(tmp_path)
    inner.gate.release()
    store = opened(AsyncStore(inner, buffer="1 MB"))
    store.put(Place(0, 0, "disk"), 1.5, 8)
    store.flush()
    store.put(Place(4, 1, "disk"), 2.5, 8)
    inner.gate.release()
    store.put(Place(6, 2, "disk"), 3.5, 8)
    assert store.get(Place(0, 0, "disk")) == 1.5
    inner.gate.release()
    store.flush()
    (tmp_path / "step-000000000004.npz").write_bytes(b"zero")
    store.prefetch(Place(4, 1, "disk"))
    store.prefetch(Place(6, 2, "disk"))
    with pytest.raises(SnapshotError, match="damaged"):
        store.get(Place(4, 1, "disk"))
    assert store.get(Place(6, 2, "disk")) == 3.5
    store.close()


class Full(DiskStore):
    """A disk that has no room for the ninth write, or for the record of the end."""

    fails, writes = "put", 0

    def put(self, place, capsule, nbytes):
        self.writes += 1
        if self.fails == "put" and self.writes == 9:
            raise StoreError("`the disk` cannot be written: No space left")
        super().put(place, capsule, nbytes)

    def record(self, record):
        if self.fails == "record" and record.left == 0:
            raise StoreError("`record.npz` cannot be written: No space left")
        super().record(record)


@pytest.mark.parametrize(
    ("fails", "said"),
    [
        ("put", "in the background, step .* could not be written: .*No space left"),
        ("record", "the record could not be written: `record"),
    ],
)
def test_an_error_in_the_background_is_raised_by_what_comes_next(tmp_path, fails, said):
    """By the next call, or by `close`; and the next process goes on."""
    disk = Full(tmp_path, every=0)
    disk.fails = fails
    with pytest.raises(StoreError, match=said):
        call(AsyncStore(disk), "states")
    assert call(AsyncStore(DiskStore(tmp_path, every=0)), "states").report.resumed


def test_a_record_is_of_the_cotangent_as_it_was(tmp_path):
    store, g = opened(AsyncStore(DiskStore(tmp_path))), np.ones(3)
    store.record(Record(9, 4, g, "test"))
    g[:] = 7.0
    store.close()
    record = DiskStore(tmp_path).open("test")
    assert record is not None and record.cotangent.tolist() == [1.0, 1.0, 1.0]


def test_a_cotangent_of_no_known_class_is_refused_at_once(tmp_path):
    store = opened(AsyncStore(DiskStore(tmp_path)))
    with pytest.raises(StoreError, match="`set`.*register_state"):
        store.record(Record(9, 4, {3, 1}, "test"))
    store.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="POSIX")
def test_a_forked_child_is_refused(tmp_path):
    store = opened(AsyncStore(DiskStore(tmp_path)))
    store.put(Place(0, 0, "disk"), 1.5, 8)
    store.flush()
    # As in a child: threads make a real fork in a test a warning of Python 3.12.
    store._thread._process += 1
    with pytest.raises(StoreError, match="the process that this one was forked from"):
        store.put(Place(1, 1, "disk"), 1.5, 8)
    store._thread._process -= 1
    store.close()

"""Several processes, one program: all resume from one record, or refuse by name."""

import contextlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import retape
from retape import DiskStore, PlanError, SnapshotError, StoreError
from retape.storage import AsyncStore, Place, RankStore, Record

SCRIPT = Path(__file__).with_name("ranked.py")


def ring(folder, size, die=(-1, 0), snapshots=4):
    """Run all ranks; their exit codes and what the last wrote to its error stream."""
    folder.mkdir(exist_ok=True)
    socket = folder / "socket"
    socket.unlink(missing_ok=True)
    common = [*map(str, die), str(folder), str(socket), str(snapshots)]
    ranks = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(rank), str(size), *common],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    errors = [rank.communicate(timeout=120)[1] for rank in ranks]
    return [rank.returncode for rank in ranks], errors


def gradient(folder, size):
    return np.concatenate([np.load(folder / f"got{rank}.npy") for rank in range(size)])


def alone(cells, steps):
    """The same ring in one process, by the formulas alone."""
    x, rate, states = np.sin(np.arange(cells) / 50.0), 1e-3, []
    for _ in range(steps):
        states.append(x)
        x = x + rate * np.roll(x, 1) * np.roll(x, -1)
    g = 2.0 * x
    for x in reversed(states):
        after = np.roll(g, -1) * np.roll(x, -2)
        g = g + rate * (after + np.roll(g, 1) * np.roll(x, 2))
    return g


@pytest.mark.slow
def test_a_ranks_death_loses_nothing(tmp_path):
    size, deaths, whole = 2, [40, 90], tmp_path / "whole"
    codes, errors = ring(whole, size)
    assert codes == [0] * size, errors
    expected = gradient(whole, size)
    np.testing.assert_allclose(expected, alone(20 * size, 60), rtol=1e-12)
    folder = tmp_path / "killed"
    for number, call in enumerate(deaths):
        codes, _ = ring(folder, size, die=(number % size, call))
        assert codes[number % size] == 9 and all(codes)
    codes, errors = ring(folder, size)
    assert codes == [0] * size, errors
    assert gradient(folder, size).tobytes() == expected.tobytes()
    reports = {(folder / f"report{rank}.txt").read_text() for rank in range(size)}
    # All went on from one place, and none began anew.
    assert len(reports) == 1
    resumed, done = reports.pop().split()
    full = (whole / "report0.txt").read_text().split()
    assert resumed == "True" and int(done) < int(full[1])


def test_ranks_under_other_plans_are_refused(tmp_path):
    codes, errors = ring(tmp_path / "ring", 2, snapshots=5)
    assert all(codes)
    for error in errors:
        assert "the ranks disagree about the run: rank 0 runs" in error
        assert "Pass the same plan on all of them" in error


class Played:
    """A communicator whose other rank says what a test tells it to."""

    def __init__(self, other=None):
        self.other = other if other is not None else (lambda mine: mine)

    def Get_rank(self):
        return 0

    def Get_size(self):
        return 2

    def allgather(self, sendobj):
        return [sendobj, self.other(sendobj)]


def opened(path, other=None, **options):
    store = RankStore(DiskStore(path, **options), Played(other))
    return store, store.open("a run")


def of_size(size, answer):
    """What is said instead of a tuple of so many."""
    return lambda mine: (
        answer if isinstance(mine, tuple) and len(mine) == size else mine
    )


def test_a_rank_that_is_ahead_goes_back_to_the_record_before(tmp_path):
    store, _ = opened(tmp_path)
    for left in (30, 20, 10):
        store.record(Record(40, left, float(left), "a run"))
    store.close()
    store, record = opened(tmp_path, of_size(3, (True, -20, True)))
    assert record is not None and (record.left, record.cotangent) == (20, 20.0)
    store.close()
    # No record is left in common: all go on from the snapshots that they have.
    store, _ = opened(tmp_path)
    store.put(Place(3, 0, "disk"), 1.5, 8)
    store.close()
    with pytest.warns(retape.RetapeWarning, match="no record in common"):
        store, record = opened(tmp_path, of_size(3, (False, 0, False)))
    assert record is None and store.steps() == {3}
    assert store.get(Place(3, 0, "disk")) == 1.5
    store.close()
    store, record = opened(tmp_path)
    assert record is not None and record.left is None and store.steps() == {3}
    store.close()


@pytest.mark.parametrize(("interrupted", "left"), [(20, None), (5, None), (None, 0)])
def test_a_rank_that_is_interrupted_leaves_the_common_record(
    tmp_path, interrupted, left
):
    """It may be the only one: at Ctrl-C nothing is written that all would write."""

    def step(x, k):
        return 0.9 * x

    def reverse_step(x, k, g):
        if k == interrupted:
            raise KeyboardInterrupt
        return 0.9 * g

    store = RankStore(DiskStore(tmp_path, every=1e6), Played())
    program, ends = retape.Program(step, reverse_step), contextlib.nullcontext()
    if interrupted is not None:
        ends = pytest.raises(KeyboardInterrupt)
    with ends:
        retape.adjoint(program, 1.5, seed=lambda x: 1.0, steps=40, store=store, key=1)
    record, _ = store.inner._directory.read_record()
    assert record[1] == left


def instead(silence):
    """What is said where the other rank has nothing to say against it."""
    return lambda mine: silence if mine is None else mine


def get_third(store):
    return store.get(Place(3, 0, "disk"))


def put_fifth(store):
    store.put(Place(5, 1, "disk"), 2.5, 8)


def record_thirty(store):
    store.record(Record(40, 30, 3.0, "a run"))


@pytest.mark.parametrize(
    ("does", "other", "said"),
    [
        (get_third, instead((True, "bad")), "rank 1 could not read step 3: bad"),
        (put_fifth, instead((False, "full")), "rank 1 could not keep step 5: full"),
        (get_third, of_size(2, (7, False)), "rank 0 reads step 3 and rank 1 step 7"),
        (record_thirty, instead((False, "x")), "rank 1 could not write its record: x"),
    ],
)
def test_what_one_rank_cannot_do_none_does(tmp_path, does, other, said):
    store, _ = opened(tmp_path)
    store.put(Place(3, 0, "disk"), 1.5, 8)
    store.comm.other = other
    kind = SnapshotError if "could not read" in said else StoreError
    with pytest.raises(kind, match=said):
        does(store)
    store.close()


def test_what_all_have_and_the_largest_is_what_counts(tmp_path):
    store, _ = opened(tmp_path)
    store.put(Place(3, 0, "disk"), 1.5, 8)
    store.comm.other = lambda mine: {3, 9} if isinstance(mine, set) else mine
    assert store.steps() == {3}
    for other in (80, None):
        store.comm.other = lambda mine, other=other: other
        assert store.largest(8) == other
    store.close()


def test_a_rank_may_write_in_the_background(tmp_path, monkeypatch):
    comm = Played()
    store = RankStore(AsyncStore(DiskStore(tmp_path, every=0)), comm)
    store.open("a run")
    assert store.record_due()
    # A rank whose last record still waits: nobody goes on to the next.
    comm.other = lambda mine: (False, True)
    assert not store.record_due()
    comm.other = lambda mine: mine
    for left in (30, 20):
        assert store.record_due()
        store.record(Record(40, left, float(left), "a run"))
        store.inner.flush()

    # What the background could not do is heard of by all, at what they do next.
    def full(*_, **__):
        raise StoreError("disk full")

    monkeypatch.setattr(AsyncStore, "drop", full)
    store.drop(Place(3, 0, "disk"))
    with pytest.raises(StoreError, match="disk full"):
        store.get(Place(2, 0, "disk"))
    store.close()
    behind = Played(of_size(3, (True, -30, True)))
    store = RankStore(AsyncStore(DiskStore(tmp_path)), behind)
    record = store.open("a run")
    assert record is not None and record.left == 30
    store.close()


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_no_rank_waits_for_one_that_fails_in_another_way(tmp_path, monkeypatch, error):
    heard = []
    store, _ = opened(tmp_path, lambda mine: heard.append(mine) or mine)

    def fails(*_, **__):
        raise error

    monkeypatch.setattr(DiskStore, "put", fails)
    with pytest.raises(type(error)):
        put_fifth(store)
    assert heard[-1] == (False, f"{type(error).__name__}: {error}")
    store.close()


def test_a_signal_would_stop_each_rank_elsewhere(tmp_path):
    store = RankStore(DiskStore(tmp_path), Played())
    with retape.interruptible(signals=()):
        with pytest.raises(PlanError, match="not go with a `RankStore` of several"):
            retape.adjoint(
                retape.Program(lambda x, k: 2 * x, lambda x, k, g: 2 * g),
                1.0,
                seed=lambda x: 1.0,
                steps=3,
                store=store,
            )

"""How much of its transfers a run waits for: by counts, with nothing measured."""

import numpy as np
import pytest

import retape
from retape import MemoryStore, PlanError, StoreError, Tier
from retape.driver import simulate
from retape.schedule import Advance, Drop, Restore, Reverse, Store
from retape.storage import AsyncStore, CodecStore, measure

BANDWIDTHS = (1, 4, 16, 64)
"""Steps that a transfer of a snapshot takes."""


@pytest.mark.parametrize("slow", BANDWIDTHS)
@pytest.mark.parametrize("shape", [(1000, 5, 40), (1000, 10, 1000), (2000, 10, 100)])
def test_less_than_a_twentieth_of_a_run_is_waiting(slow, shape):
    n, memory, disk = shape
    tiers = Tier("memory", memory), Tier("disk", disk, slow, slow)
    schedule = retape.tiers(levels=tiers, stage=1).schedule(n)
    behind, plain = simulate(schedule, tiers), simulate(schedule, tiers, buffer=0)
    assert behind.share < 0.05
    assert behind.exposed <= plain.exposed == plain.transfer
    assert plain.compute == behind.compute


def test_the_model_is_right_where_it_can_be_done_by_hand():
    """Writes of 10 behind steps of 1; the read of 10 begins when it is announced."""
    actions = [
        Store(0, 0, "disk"),
        Advance(0, 4),
        Store(4, 1, "disk"),
        Advance(4, 8),
        Reverse(8, 9),
        Restore(4, 1, "disk"),
        Drop(4, 1, "disk"),
        Advance(4, 7),
        Reverse(7, 8),
        Restore(0, 0, "disk"),
        Reverse(0, 1),
    ]
    tiers = Tier("memory", 0), Tier("disk", 2, 10, 10)
    # Step 4 is written from 10 to 20, and then at hand; step 0 is read from 20 to 30.
    found = simulate(actions, tiers)
    assert (found.compute, found.transfer, found.exposed) == (17, 30, 15)
    assert simulate(actions, tiers, buffer=1).exposed == 15
    assert simulate(actions, tiers, buffer=0).exposed == 40
    assert "17 computing, 30 transferring, of which 15 are waited for" in str(found)


def test_one_tier_is_all_on_disk_under_another_name():
    schedule = retape.fixed_space(snapshots=4).schedule(50)
    counts = schedule.counts()
    found = simulate(schedule, [Tier("memory", 4, 2, 1)])
    assert found.exposed == 0
    steps = counts.advances + 2 * counts.taped
    assert found.compute == steps + 2 * counts.stores + counts.restores


def test_what_cannot_be_is_refused(tmp_path):
    with pytest.raises(
        PlanError, match="`buffer=-1` is not valid: pass a number of snap"
    ):
        simulate([], [Tier("memory", 1)], buffer=-1)
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

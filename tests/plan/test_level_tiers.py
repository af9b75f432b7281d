"""Plans over any number of tiers: predicted, run on nested stores, refused."""

import numpy as np
import pytest

import retape
import retape.jax
from retape import (
    DiskStore,
    MemoryStore,
    PlanError,
    StoreError,
    Tier,
    TieredStore,
)
from retape.storage import AsyncStore, Place, RemoteStore, measure

LEVELS = (
    Tier("device", 2),
    Tier("host", 3, 1, 1),
    Tier("disk", 4, 4, 4),
    Tier("remote", 6, 9, 9),
)
PLAN = retape.tiers(levels=LEVELS, stage=1)
N = 60


def call(plan, store, stop=None):
    def step(x, k):
        return 3.9 * x * (1.0 - x)

    def reverse_step(x, k, g):
        if k == stop:
            raise KeyboardInterrupt
        return 3.9 * (1.0 - 2.0 * x) * g

    return retape.adjoint(
        retape.Program(step, reverse_step),
        np.linspace(0.11, 0.12, 5),
        seed=np.ones_like,
        steps=N,
        plan=plan,
        store=store,
        key="a run",
    )


def nested(path, near=None):
    """Memory, memory, a disk, and a remote store that is not in this process."""
    disk = DiskStore(path / "disk", capacity=4, every=0)
    far = AsyncStore(RemoteStore(f"memory://{path.name}", every=0))
    near = MemoryStore(capacity=2) if near is None else near
    rest = TieredStore(MemoryStore(capacity=3), TieredStore(disk, far))
    return TieredStore(near, rest)


def test_each_part_of_a_nested_store_has_its_tier(tmp_path):
    whole = call(retape.fixed_space(snapshots=N), MemoryStore())
    store = nested(tmp_path)
    # Every tier is wanted when they are cheap enough.
    levels = (*LEVELS[:2], Tier("disk", 2, 1, 1), Tier("remote", 4, 1, 1))
    plan = retape.tiers(levels=levels, stage=1)
    result = call(plan, store)
    assert result.cotangent.tobytes() == whole.cotangent.tobytes()
    prediction = plan.predict(N)
    assert result.report.tiers == prediction.tiers
    parts = [store.memory, store.disk.memory, store.disk.disk.memory]
    parts.append(store.disk.disk.disk)
    peaks = [part.peak_snapshots for part in parts]
    assert peaks == [use.peak for use in prediction.tiers.values()]
    assert all(peaks)
    assert "remote: 4 stores" in str(prediction)
    assert "\nremote: 4 stores" in str(result.report)


def test_a_run_over_four_tiers_goes_on_where_it_ended(tmp_path):
    whole = call(PLAN, MemoryStore())
    for stop in (58, 40, 21, 3):
        with pytest.raises(KeyboardInterrupt):
            call(PLAN, nested(tmp_path), stop)
    found = call(PLAN, nested(tmp_path))
    assert found.report.resumed
    assert found.cotangent.tobytes() == whole.cotangent.tobytes()


def test_what_is_in_both_memories_is_written_before_a_run_ends(tmp_path):
    store = nested(tmp_path)
    store.open("a run")
    store.name_tiers(("device", "host", "disk", "remote"))
    store.put(Place(1, 0, "device"), 1.5, 8)
    store.disk.put(Place(2, 0, "host"), 2.5, 8)
    store._is_far["host", 0] = True
    assert store.steps() == set()
    assert store.save(Place(1, 0, "device"), 8) and store.save(Place(2, 0, "host"), 8)
    assert store.steps() == {1, 2} and not store.save(Place(2, 0, "host"), 8)
    assert not len(store.memory) and not len(store.disk.memory)
    store.close()


def test_a_full_part_hands_over_to_the_next(tmp_path):
    store = nested(tmp_path, MemoryStore(capacity=1))
    found = call(PLAN, store)
    assert found.cotangent.tobytes() == call(PLAN, MemoryStore()).cotangent.tobytes()
    assert store.memory.peak_snapshots == 1


def test_a_store_of_another_plan_decides_as_before(tmp_path):
    store = TieredStore(MemoryStore(capacity=9), DiskStore(tmp_path))
    call(retape.tiers(levels=LEVELS[:2], stage=1), store)
    assert store.disk.peak_snapshots == 3
    store.clear()
    call(retape.fixed_space(snapshots=5, stage=1), store)
    assert store.memory.peak_snapshots == 5


def test_measured_speeds_are_the_costs_of_a_tier(tmp_path):
    speed, step = measure(tmp_path, nbytes=800), 0.01
    far = Tier("disk", 20, write=speed.write / step, read=speed.read / step)
    prediction = retape.tiers(levels=(Tier("host", 2), far)).predict(100)
    assert prediction.tiers["disk"].peak > 0


def test_a_store_or_a_run_that_does_not_go_with_four_tiers_is_refused(tmp_path):
    store = TieredStore(MemoryStore(capacity=2), DiskStore(tmp_path))
    text = "4 tiers .device, host, disk, remote., and .* has 2 parts. Pass one of as"
    with pytest.raises(StoreError, match=text):
        call(PLAN, store)
    done = lambda x: x >= 5  # noqa: E731
    step, reverse_step = lambda x, k: x, lambda x, k, g: g
    with pytest.raises(PlanError, match="needs the number of steps beforehand"):
        retape.adjoint(
            retape.Program(step, reverse_step, done=done),
            1.0,
            seed=lambda x: x,
            plan=PLAN,
        )

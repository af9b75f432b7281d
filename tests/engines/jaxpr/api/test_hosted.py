"""Plans that are obeyed action by action, where the host steers a gradient of JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import retape
import retape.jax
from retape import DiskStore, MemoryStore, PlanError, Tier, TieredStore
from retape.storage import AsyncStore, measure

X = np.linspace(0.1, 0.9, 64 * 64)


def step(c):
    return c + 0.01 * jnp.sin(c)


def counted(x):
    return jax.lax.scan(lambda c, _: (step(c), None), x, None, length=60)[0].sum()


def ending(x):
    return jax.lax.while_loop(lambda c: c.sum() < 3000.0, step, x).sum()


def taken(fun, plan, store, **options):
    """The gradient under a plan; it is that of JAX, or of the sweep in one program."""
    plain = retape.jax.grad(ending, plan=retape.fixed_space(snapshots=6))
    want = (jax.grad(counted) if fun is counted else plain)(X)
    found = retape.jax.grad(fun, plan=plan, store=store, **options)(X)
    np.testing.assert_allclose(found, want, rtol=1e-10)


def test_tiers_from_measured_bandwidths(tmp_path):
    speed = measure(tmp_path, nbytes=X.nbytes)
    costs = speed.write / 0.01, speed.read / 0.01
    plan = retape.tiers(levels=(Tier("memory", 2), Tier("disk", 20, *costs)), stage=2)
    far = AsyncStore(DiskStore(tmp_path / "run"))
    store = TieredStore(MemoryStore(capacity=2), far)
    taken(counted, plan, store)
    assert store.memory.peak_snapshots == 2 and far.peak_snapshots > 2


def test_any_number_of_tiers(tmp_path):
    levels = Tier("host", 2), Tier("disk", 2, 0.5, 0.5), Tier("remote", 9, 1, 1)
    near = DiskStore(tmp_path / "near", capacity=2)
    far = TieredStore(near, DiskStore(tmp_path / "far"))
    store = TieredStore(MemoryStore(capacity=2), far)
    plan = retape.tiers(levels=levels, stage=2)
    taken(counted, plan, store)
    assert store.memory.peak_snapshots == near.peak_snapshots == 2
    assert far.disk.peak_snapshots > 0
    with pytest.raises(PlanError, match="needs the number of steps beforehand"):
        taken(ending, plan, store)


@pytest.mark.parametrize("memory", [3, "400 kB"])
def test_their_stages_and_bytes_are_those_of_the_program(memory):
    told, store = [], MemoryStore()
    plan = retape.tiers(memory=memory, disk=4)
    taken(counted, plan, store, progress=told.append)
    assert 1 < store.peak_snapshots <= 3 + 4 + 9
    assert told[-1].reversed == told[-1].length >= 60
    assert told[-1].done == told[-1].total


@pytest.mark.slow("3")
@pytest.mark.parametrize("stage", [1, 3])
def test_tiers_for_a_run_of_unknown_length(tmp_path, stage):
    store = TieredStore(MemoryStore(capacity=2), DiskStore(tmp_path / "run"))
    taken(ending, retape.tiers(memory=2, disk=4, stage=stage), store)
    assert 2 < store.peak_snapshots <= 2 + 4 + 1


def test_chains_of_unknown_length_and_tapes_in_slots_are_refused():
    one = [1] * 61
    chain = retape.chain(forward=one, states=one, tapes=one, budget=8, store={"state"})
    mixed = retape.fixed_space(snapshots=3, store={"state", "tape"})
    for fun, plan, store, said in (
        (ending, chain, MemoryStore(), "number of steps|how many steps"),
        (counted, mixed, MemoryStore(), "its slots may hold tapes, and `retape.jax` w"),
        (counted, retape.tiers(memory=2, disk=4), None, "obeyed action by action"),
    ):
        with pytest.raises(PlanError, match=said):
            retape.jax.grad(fun, plan=plan, store=store)(X)

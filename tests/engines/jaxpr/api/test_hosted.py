"""Plans that are obeyed action by action, where the host steers a gradient of JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import retape
import retape.jax
from retape import MemoryStore, PlanError, TieredStore
from retape.storage import AsyncStore, measure

X = np.linspace(0.1, 0.9, 64 * 64)


def counted(x):
    def step(c, _):
        return c + 0.01 * jnp.sin(c), None

    return jax.lax.scan(step, x, None, length=60)[0].sum()


def ending(x):
    y = jax.lax.while_loop(lambda c: c.sum() < 3000.0, lambda c: 1.01 * c, x)
    return y.sum()


def plain(x):
    """The derivative of `counted`, by hand."""
    g = np.ones_like(x)
    states = [x]
    for _ in range(59):
        states.append(states[-1] + 0.01 * np.sin(states[-1]))
    for state in reversed(states):
        g = g * (1 + 0.01 * np.cos(state))
    return g


def test_tiers_from_measured_bandwidths(tmp_path):
    speed, step = measure(tmp_path, nbytes=X.nbytes), 0.01
    costs = speed.write / step, speed.read / step
    tiers = retape.Tier("memory", 2), retape.Tier("disk", 20, *costs)
    plan = retape.tiers(levels=tiers, stage=2)
    far = AsyncStore(retape.DiskStore(tmp_path / "run"))
    store = TieredStore(MemoryStore(capacity=2), far)
    found = retape.jax.grad(counted, plan=plan, store=store)(X)
    assert np.allclose(found, plain(X), rtol=1e-5)
    assert store.memory.peak_snapshots == 2 and far.peak_snapshots > 2


def test_any_number_of_tiers(tmp_path):
    levels = (
        retape.Tier("host", 2),
        retape.Tier("disk", 2, 0.5, 0.5),
        retape.Tier("remote", 9, 1, 1),
    )
    near = retape.DiskStore(tmp_path / "near", capacity=2)
    far = TieredStore(near, retape.DiskStore(tmp_path / "far"))
    store = TieredStore(MemoryStore(capacity=2), far)
    plan = retape.tiers(levels=levels, stage=2)
    found = retape.jax.grad(counted, plan=plan, store=store)(X)
    assert np.allclose(found, plain(X), rtol=1e-5)
    assert store.memory.peak_snapshots == near.peak_snapshots == 2
    assert far.disk.peak_snapshots > 0
    with pytest.raises(PlanError, match="needs the number of steps beforehand"):
        retape.jax.grad(ending, plan=plan, store=store)(X)


@pytest.mark.parametrize("memory", [3, "400 kB"])
def test_their_stages_and_bytes_are_those_of_the_program(memory):
    told = []
    plan = retape.tiers(memory=memory, disk=4)
    store = MemoryStore()
    gradient = retape.jax.grad(counted, plan=plan, store=store, progress=told.append)
    assert np.allclose(gradient(X), plain(X), rtol=1e-5)
    assert 1 < store.peak_snapshots <= 3 + 4 + 9
    assert told[-1].reversed == told[-1].length >= 60
    assert told[-1].done == told[-1].total


@pytest.mark.parametrize("stage", [1, 3])
def test_tiers_for_a_run_of_unknown_length(tmp_path, stage):
    plan = retape.tiers(memory=2, disk=4, stage=stage)
    store = TieredStore(MemoryStore(capacity=2), retape.DiskStore(tmp_path / "run"))
    found = retape.jax.grad(ending, plan=plan, store=store)(X)
    plain = retape.jax.grad(ending, plan=retape.fixed_space(snapshots=6))(X)
    np.testing.assert_allclose(found, plain, rtol=1e-12)
    assert 2 < store.peak_snapshots <= 2 + 4 + 1


def test_chains_of_unknown_length_and_tapes_in_slots_are_refused():
    plan = retape.tiers(memory=2, disk=4)
    one = [1] * 61
    chain = retape.chain(forward=one, states=one, tapes=one, budget=8, store={"state"})
    with pytest.raises(PlanError, match="number of steps|how many steps"):
        retape.jax.grad(ending, plan=chain, store=MemoryStore())(X)
    mixed = retape.fixed_space(snapshots=3, store={"state", "tape"})
    with pytest.raises(PlanError, match="its slots may hold tapes, and `retape.jax` w"):
        retape.jax.grad(counted, plan=mixed, store=MemoryStore())(X)
    with pytest.raises(PlanError, match="obeyed action by action"):
        retape.jax.grad(counted, plan=plan)(X)

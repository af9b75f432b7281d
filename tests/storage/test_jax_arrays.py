"""JAX's arrays as states: copied where they are, to memory and to files."""

import sys

import numpy as np
import pytest

import retape
from retape import DiskStore, MemoryStore, TieredStore
from retape.storage import CodecStore, Place, ZarrStore, fingerprint, tree_nbytes
from tests.judges.pairwise import dealt
from tests.storage.files import WAYS, written

jax = pytest.importorskip("jax")
jnp = jax.numpy

STEPS = 23


@pytest.mark.parametrize("again", WAYS)
@pytest.mark.parametrize(
    "made",
    [
        lambda: jnp.arange(6.0).reshape(2, 3),
        lambda: jnp.zeros((0, 3)),
        lambda: jnp.ones(3, jnp.bfloat16),
        lambda: jnp.ones(3, jnp.int4),
        lambda: jnp.asarray(1.5),
        lambda: jnp.asarray(3),
        lambda: jnp.broadcast_to(jnp.asarray(1.5j), (2,)),
        lambda: jax.random.key(3),
        lambda: jax.random.split(jax.random.key(3, impl="rbg")),
        lambda: jax.device_put(jnp.ones(3), jax.devices()[0]),
    ],
)
def test_what_a_step_can_observe_is_kept(again, made):
    array = made()
    found = again({"x": array})["x"]
    assert isinstance(found, jax.Array) and found is not array
    assert found.aval == array.aval  # Shape, type and whether that is weak.
    assert found.sharding == array.sharding and found.committed == array.committed
    assert fingerprint(found) == fingerprint(array)
    if not jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        np.testing.assert_array_equal(found, array)
    assert tree_nbytes(array) == array.nbytes
    # What is weak has another digest.
    assert fingerprint(jnp.asarray(1.5)) != fingerprint(jnp.float32(1.5))


def test_another_process_without_it_is_told(monkeypatch):
    store, _ = written(jnp.ones(2))
    with monkeypatch.context() as within:
        within.delitem(sys.modules, "jax")
        with pytest.raises(retape.SnapshotError, match="Import `jax`"):
            store.get(Place(0, 0, "disk"))
    with jax.enable_x64(True):
        store, _ = written(jnp.ones(2))
    with pytest.raises(retape.SnapshotError, match="jax_enable_x64"):
        store.get(Place(0, 0, "disk"))
    store, _ = written(jax.device_put(jnp.ones(2), jax.devices()[0]))
    monkeypatch.setattr(jax, "local_devices", lambda **kind: [])
    with pytest.raises(retape.SnapshotError, match="which this process"):
        store.get(Place(0, 0, "disk"))


# Runs. The step is u -> u + tanh(W u) / (10 + k), in ways in which people write it.

W = jnp.linspace(-1, 1, 25).reshape(5, 5)


def plain(u, k):
    return u + jnp.tanh(W @ u) / (10 + k)


compiled = jax.jit(plain)
donating = jax.jit(plain, donate_argnums=0)


@jax.jit
def backward(u, k, g):
    return jax.vjp(lambda u: plain(u, k), u)[1](g)[0]


def start():
    return jnp.linspace(0.5, 1.5, 5)


@pytest.fixture(scope="module")
def reference():
    """By the same compiled functions, all states kept: bits are equal."""
    states = [start()]
    for k in range(STEPS):
        states.append(compiled(states[-1], k))
    g = 2 * states[-1]
    for k in reversed(range(STEPS)):
        g = backward(states[k], k, g)
    return np.asarray(states[-1]), np.asarray(g)


PLACES = {
    "memory": lambda path: MemoryStore(),
    "disk": lambda path: DiskStore(path),
    "tiers": lambda path: TieredStore(MemoryStore(capacity=1), DiskStore(path)),
    "packed": lambda path: CodecStore(MemoryStore()),
    "zarr": ZarrStore,
}


@pytest.mark.parametrize(("step", "where"), dealt([compiled, donating], list(PLACES)))
def test_runs(step, where, reference, tmp_path):
    x0 = start()
    found = retape.adjoint(
        retape.Program(step, backward),
        x0,
        seed=lambda u: 2 * u,
        steps=STEPS,
        plan=retape.tiers(memory=1, disk=2, stage=2),
        store=PLACES[where](tmp_path),
        key="a test",
    )
    assert isinstance(found.cotangent, jax.Array)
    np.testing.assert_array_equal(found.state, reference[0])
    np.testing.assert_array_equal(found.cotangent, reference[1])
    np.testing.assert_array_equal(x0, start())


def test_an_adjoint_is_checked():
    def wrong(u, k, g):
        return backward(u, k, g) + 0.05 * g

    # Types of few bits are tested in their own precision, not left out.
    few = start().astype(jnp.bfloat16)
    rows = [
        (retape.Program(compiled, backward), start(), True),
        (retape.Program(compiled, wrong), start(), False),
        (retape.Program(lambda x, k: 2 * x, lambda x, k, g: 30 * g), few, False),
    ]
    for program, x0, right in rows:
        assert retape.check_adjoint(program, x0, steps=3).ok is right

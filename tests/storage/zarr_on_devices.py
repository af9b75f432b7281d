"""A store of sharded arrays, on eight virtual devices: run by `test_zarr.py`.

No gather, another mesh, damage found, runs resumed.
"""

import os
import signal
import socket
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import retape
import retape.jax
from retape import SnapshotError, StoreError
from retape.storage import AsyncStore, Place, Record, ZarrStore, fingerprint
from retape.storage._codec import read_label
from retape.storage._sharded import _array_files
from retape.testing import check_store
from tests.storage import zarr_processes

P = PartitionSpec


def mesh(*shape, names=("x", "y")):
    count = int(np.prod(shape))
    return Mesh(np.array(jax.devices()[:count]).reshape(shape), names[: len(shape)])


def sharded(on, *spec, dtype=np.float32):
    field = jnp.arange(16 * 8).reshape(16, 8).astype(dtype)
    return jax.device_put(field, NamedSharding(on, P(*spec)))


def test_it_keeps_the_laws_of_stores(tmp_path):
    laws = check_store(lambda: retape.DiskStore(tmp_path / "plain"))
    assert check_store(lambda: ZarrStore(tmp_path / "run")) == laws
    fields = [sharded(mesh(4, 2), "x", "y") + k for k in range(3)]
    found = check_store(
        lambda: ZarrStore(tmp_path / "jax", mesh=mesh(4, 2)),
        values=[(jnp.int32(k), field) for k, field in enumerate(fields)],
        view=lambda capsule: tuple(map(np.asarray, capsule)),
    )
    assert found == laws
    assert check_store(lambda: AsyncStore(ZarrStore(tmp_path / "behind"))) == laws


def test_each_device_writes_its_own_part(tmp_path, monkeypatch):
    on, seen = mesh(4, 2), []
    array, twice = sharded(on, "x", "y"), sharded(on, None, "y")

    class Spy:
        @staticmethod
        def asarray(part):
            seen.append(part.shape)
            return np.asarray(part)

    monkeypatch.setattr(_array_files, "np", Spy)
    store = ZarrStore(tmp_path)
    store.open("test")
    store.put(Place(0, 0, "disk"), {"a": array, "b": [twice]}, 100)
    # Copies on other devices are written once.
    assert sorted(seen) == [(4, 4)] * 8 + [(16, 4)] * 2
    found = store.get(Place(0, 0, "disk"))
    assert found["a"].sharding == array.sharding
    assert (found["b"][0] == twice).all() and (found["a"] == array).all()
    store.close()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "complex64", "bool", "int8"])
def test_another_process_may_have_another_mesh(tmp_path, dtype):
    store = ZarrStore(tmp_path)
    store.open("test")
    array = sharded(mesh(4, 2), ("x", "y"), None, dtype=dtype)
    store.put(Place(3, 0, "disk"), array, 100)
    store.record(Record(9, 5, (array, 1.5), "test"))
    store.close()
    for on, parts in ((mesh(2, 2), 4), (mesh(8), 8), (mesh(3, 2), 1), (mesh(1), 1)):
        again = ZarrStore(tmp_path, mesh=on)
        record = again.open("test")
        assert record is not None and record.cotangent[1] == 1.5
        for found in (again.get(Place(3, 0, "disk")), record.cotangent[0]):
            assert found.dtype == array.dtype
            assert np.asarray(found).tobytes() == np.asarray(array).tobytes()
            assert len({str(s.index) for s in found.addressable_shards}) == parts
        again.close()
    refused = "was sharded along .* by an earlier process. Pass `mesh=`"
    with pytest.raises(StoreError, match=refused):
        ZarrStore(tmp_path).open("test")


def test_what_is_not_sharded_comes_back_as_it_was(tmp_path):
    keys = jax.random.split(jax.random.key(3), 4)
    capsule = (keys, jnp.float32(2.5), np.arange(3)[::-1], jnp.zeros((0, 3)), "text")
    store = ZarrStore(tmp_path)
    store.open("test")
    store.put(Place(3, 0, "disk"), capsule, 100)
    store.close()
    again = ZarrStore(tmp_path)
    again.open("test")
    found = again.get(Place(3, 0, "disk"))
    assert (jax.random.key_data(found[0]) == jax.random.key_data(keys)).all()
    assert found[0].dtype == keys.dtype and found[1] == 2.5
    assert found[2].tolist() == [2, 1, 0] and found[3].shape == (0, 3)
    assert found[4] == "text"
    again.close()


@pytest.mark.parametrize("damage", ["flip", "remove", "cut", "link"])
def test_damage_is_found(tmp_path, damage):
    store = ZarrStore(tmp_path)
    store.open("test")
    store.put(Place(3, 0, "disk"), sharded(mesh(4, 2), "x", "y") * 0, 100)
    (part,) = (tmp_path / "arrays").glob("step-000000000003-*/0/c/1/1")
    if damage == "flip":
        data = bytearray(part.read_bytes())
        data[5] ^= 1
        part.write_bytes(bytes(data))
    elif damage == "cut":
        part.write_bytes(part.read_bytes()[:-2])
    elif damage == "remove":
        part.unlink()
    else:
        folder = part.parents[3]
        folder.rename(tmp_path / "elsewhere")
        folder.symlink_to(tmp_path / "elsewhere")
    message = "is not there or damaged|is not a place for arrays"
    with pytest.raises(SnapshotError, match=message):
        store.get(Place(3, 0, "disk"))
    store.close()


def test_nothing_is_left_of_what_was_removed(tmp_path):
    array, arrays = sharded(mesh(2), "x"), tmp_path / "arrays"
    store = ZarrStore(tmp_path, mesh=mesh(2))
    store.open("test")
    for step in (3, 7, 7):
        store.put(Place(step, 0, "disk"), array, 100)
    for left in (8, 6, 5):
        store.record(Record(9, left, array, "test"))
    names = sorted(found.name[:17] for found in arrays.iterdir())
    assert [n[:6] for n in names] == ["record", "record", "step-0", "step-0"]
    (arrays / "step-000000000009-01234567").mkdir()  # As of a process that was killed.
    store.close()
    store.open("test")
    assert len(list(arrays.iterdir())) == 4
    # The arrays of the last record are damaged: the one before has its own.
    for name, left in (("record.npz", 6), ("record-before.npz", None)):
        (folder,) = read_label(tmp_path / name)["arrays"]
        (arrays / folder / "0" / "c" / "0" / "0").unlink()
        store.close()
        if left is None:
            with pytest.raises(retape.StoreError, match="no record of its run that"):
                store.open("test")
        else:
            record = store.open("test")
            assert record is not None and record.left == left
    store.clear()
    assert not list(arrays.iterdir())
    store.close()


def simulate(x):
    y, _ = jax.lax.scan(lambda c, _: (c + 0.01 * jnp.sin(c), None), x, None, length=120)
    return y.sum()


def test_a_gradient_goes_on_from_it(tmp_path):
    plan = retape.fixed_space(snapshots=4, stage=10)
    # Shorter or smaller loops are one step: no plan has an effect on them.
    field = jnp.linspace(0.0, 3.0, 64 * 64).reshape(64, 64)
    x = jax.device_put(field, NamedSharding(mesh(4, 2), P("x", "y")))
    expected = retape.jax.grad(simulate, plan=plan)(x)

    class Killed(ZarrStore):
        gets = 0

        def get(self, place):
            Killed.gets += 1
            if Killed.gets == 3:
                raise KeyboardInterrupt
            return ZarrStore.get(self, place)

    with pytest.raises(KeyboardInterrupt):
        retape.jax.grad(simulate, plan=plan, store=Killed(tmp_path, every=0))(x)
    found = []
    again = ZarrStore(tmp_path, mesh=mesh(4, 2))
    gradient = retape.jax.grad(
        simulate, plan=plan, store=again, progress=lambda p: found.append(p)
    )(x)
    assert (gradient == expected).all() and gradient.sharding == x.sharding
    assert found[0].reversed > 0


def test_another_number_of_processes_goes_on(tmp_path):
    # Two processes with two devices each are killed; this one has eight.
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    flags = "--xla_force_host_platform_device_count=2"
    begun = [
        subprocess.Popen(
            [sys.executable, zarr_processes.__file__, *map(str, (rank, 2, port)), path],
            env={**os.environ, "XLA_FLAGS": flags},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, path in enumerate([str(tmp_path)] * 2)
    ]
    ended = [(process.communicate()[1], process.returncode) for process in begun]
    assert [code for _, code in ended] == [-signal.SIGKILL] * 2, ended
    states = ZarrStore(tmp_path / "states", mesh=mesh(8, names="x"))
    record = states.open("test")
    assert record is not None and record.left == 4
    assert (record.cotangent == zarr_processes.field_on(mesh(8, names="x"))).all()
    states.close()
    expected = zarr_processes.run(mesh(8, names="x"), None)
    seen = []
    for on in (mesh(3, names="x"), mesh(8, names="x")):
        store = ZarrStore(tmp_path / "run", mesh=on)
        found = zarr_processes.run(on, store, progress=seen.append, reuse=True)
        assert found.report.resumed
        assert np.array_equal(found.cotangent, expected.cotangent)
    assert seen[0].reversed > 0


def test_a_digest_is_of_values_and_their_places():
    sharding = NamedSharding(mesh(4, 2), P("x", "y"))
    numbers = np.random.default_rng(0).integers(0, 2, (16, 8))
    for dtype in ("float32", "bfloat16", "complex64", "bool", "int8"):
        field = numbers.astype(jnp.dtype(dtype))
        digests = {fingerprint(jax.device_put(field, to)) for to in (None, sharding)}
        assert len(digests) == 1
        changed = field.copy()
        changed[3, 5] = not field[3, 5]
        for other in (field.T, field.reshape(8, 16), field[::-1], changed):
            assert fingerprint(jax.device_put(other)) not in digests

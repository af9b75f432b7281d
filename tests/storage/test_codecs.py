"""Codecs: what is lossless is, what is bounded keeps its bound, bytes are counted."""

import contextlib
import re

import numpy as np
import pytest

import retape
from retape import DiskStore, MemoryStore, PlanError, SnapshotError, StoreError
from retape.storage import CodecStore, Place, bounded, copy_tree
from tests.programs import run_program

SMOOTH = np.sin(np.linspace(0, 20, 60))[:, None] * np.cos(np.linspace(0, 9, 80))
ARRAYS = {
    "smooth": SMOOTH,
    "single": SMOOTH.astype("f4"),
    "complex": SMOOTH + 1j * SMOOTH.T[:60, :1],
    "fortran": np.asfortranarray(SMOOTH),
    "integers": np.arange(50),
    "zero_d": np.array(3.5),
    "empty": np.zeros((0, 3)),
    "zeros": np.zeros(100_000),
    "infinite": np.array([np.inf, 1.0, np.nan, -0.0]),
    "long": SMOOTH.astype(np.longdouble),
    "swapped": SMOOTH.astype(">f8"),
    "fields": np.ones(3, [("a", "f8"), ("b", "i4")]),
    "huge": SMOOTH * 1e300,
    "noise": np.random.default_rng(0).normal(size=500),
}


def again(array, codec):
    """An array as a store with a codec gives it back."""
    store = CodecStore(MemoryStore(), codec)
    with np.errstate(invalid="ignore"):  # the error of infinity is not a number
        store.put(Place(0, 0), array, array.nbytes)
    return store.get(Place(0, 0))


@pytest.mark.parametrize("name", ARRAYS)
def test_what_is_lossless_is_and_a_bound_is_kept_or_nothing_is_lost(name):
    array = ARRAYS[name]
    back = again(array, "lossless")
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.strides == array.strides and back.tobytes() == array.tobytes()
    for error in (1e-1, 1e-4, 1e-12):
        back = again(array, bounded(relative=error))
        assert (back.dtype, back.strides) == (array.dtype, array.strides)
        if back.tobytes() != array.tobytes():
            assert np.abs(back - array).max() <= error * np.abs(array).max()
    back = again(array, bounded(absolute=0.01))
    if array.dtype.kind in "fc" and array.size and not np.isnan(array).any():
        assert np.abs(back - array).max() <= 0.01


def test_rounded_types_are_those_of_numpy_and_ml_dtypes():
    array = np.concatenate([ARRAYS["noise"], [0.0, -0.0, np.inf, np.nan, 1e-40]])
    for codec in ("float16", "float32"):
        back = again(array, codec)
        assert back.tobytes() == array.astype(codec).astype("f8").tobytes()
    ml_dtypes = pytest.importorskip("ml_dtypes")
    back = again(array, "bfloat16")
    expected = array.astype("f4").astype(ml_dtypes.bfloat16).astype("f8")
    np.testing.assert_array_equal(back, expected)


@pytest.mark.parametrize(("codec", "most"), [("float16", 7e4), ("bfloat16", 1e300)])
def test_a_number_that_is_too_large_is_refused(codec, most):
    said = re.escape(f"`codec='{codec}'` cannot hold {most:.0e}")
    with pytest.raises(PlanError, match=said):
        again(np.array([most]), codec)


def test_bombs_are_refused():
    """Bytes that claim to be more than a thousand times their number."""
    inner, zeros = MemoryStore(), ARRAYS["zeros"]
    store = CodecStore(inner, "lossless")
    store.put(Place(0, 0), zeros, zeros.nbytes)
    mark, text, data = inner.get(Place(0, 0))
    for claimed, said in (
        ("12500000", "100000000 bytes are claimed"),
        ("50000", "damaged"),
    ):
        inner.drop(Place(0, 0))
        inner.put(Place(0, 0), (mark, text.replace("100000", claimed), data), 8)
        with pytest.raises(SnapshotError, match=said):
            store.get(Place(0, 0))


def test_damaged_specs_are_a_snapshot_error(seeded):
    store = MemoryStore()
    packed = CodecStore(store, bounded(relative=1e-3))
    packed.put(Place(0, 0), SMOOTH, SMOOTH.nbytes)
    mark, text, data = store.get(Place(0, 0))
    for _ in range(100):
        i = seeded.randrange(len(text))
        broken = text[:i] + seeded.choice('0{[]}",x9') + text[i + 1 :]
        store.drop(Place(0, 0))
        store.put(Place(0, 0), (mark, broken, data), 8)
        with contextlib.suppress(SnapshotError):  # and nothing else
            packed.get(Place(0, 0))
    store.drop(Place(0, 0))
    store.put(Place(0, 0), SMOOTH, 8)
    with pytest.raises(SnapshotError, match="was not written by a `CodecStore`"):
        packed.get(Place(0, 0))


def test_views_of_one_array_stay_views():
    whole = np.zeros(100)
    store = CodecStore(MemoryStore(), bounded(relative=1e-3))
    store.put(Place(0, 0), copy_tree({"u": whole, "inner": whole[1:-1]}), 800)
    back = store.get(Place(0, 0))
    back["inner"][0] = 7.0
    assert back["u"][1] == 7.0


def call(store, plan=None, ends=None, fails=None):
    left = fails or 0

    def step(x, k):
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt
        return x + 0.05 * np.sin(3 * x)

    return run_program(
        step,
        lambda x, k, g: g + 0.15 * np.cos(3 * x) * g,
        np.linspace(0, 1, 400),
        seed=lambda x: x,
        plan=plan or retape.fixed_space(snapshots=4, stage=2),
        store=store,
        key="a run",
        **{"steps": 60} if ends is None else {"done": ends},
    )


@pytest.mark.parametrize("ends", ["steps", "done"])
def test_a_run_with_loss_has_the_exact_value_and_the_same_bits_again(tmp_path, ends):
    exact = call(MemoryStore())
    done = None if ends == "steps" else lambda x: bool((x == exact.state).all())
    make = lambda kind: CodecStore(kind, bounded(relative=1e-3))  # noqa: E731
    near = call(make(MemoryStore()), ends=done)
    assert (near.state == exact.state).all()
    away = np.linalg.norm(near.cotangent - exact.cotangent)
    assert 0 < away < 0.05 * np.linalg.norm(exact.cotangent)
    for i, fails in enumerate((10, 70, 130)):
        with pytest.raises(KeyboardInterrupt):
            call(make(DiskStore(tmp_path / str(i))), ends=done, fails=fails)
        again = call(make(DiskStore(tmp_path / str(i))), ends=done)
        assert again.cotangent.tobytes() == near.cotangent.tobytes()


def test_another_codec_is_another_run(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        call(CodecStore(DiskStore(tmp_path), "lossless"), fails=70)
    with pytest.raises(StoreError, match="they differ in `codec`"):
        call(CodecStore(DiskStore(tmp_path), "bfloat16"))
    with pytest.raises(StoreError, match="they differ in `codec`"):
        call(DiskStore(tmp_path))


def test_bytes_enter_budgets():
    plan = retape.within(40_000)
    plain = call(MemoryStore(), plan)
    half = CodecStore(MemoryStore(capacity_bytes=40_000), "float32")
    near = call(half, plan)
    # The tape of a stage, of 3200 bytes a step, shares them.
    tape = 3200 * near.report.longest_stage
    assert near.report.peak_bytes + tape <= 40_000
    assert near.report.advances < plain.report.advances
    # What the data allow is not known beforehand: snapshots count as they are.
    allowed = CodecStore(MemoryStore(), bounded(relative=1e-3))
    found = call(allowed, plan).report
    assert found.advances == plain.report.advances
    assert found.peak_bytes < plain.report.peak_bytes


def test_more_loss_is_a_gradient_further_off():
    exact = call(MemoryStore()).cotangent
    off = []
    for codec in ("lossless", bounded(relative=1e-5), "bfloat16"):
        store = CodecStore(MemoryStore(), codec)
        off.append(np.linalg.norm(call(store).cotangent - exact))
        assert store.raw_bytes > store.packed_bytes
    assert off[0] == 0 < off[1] < 2e-4 * np.linalg.norm(exact) < off[2]


def test_what_cannot_be_is_refused():
    with pytest.raises(PlanError, match=r"bounded\(relative=None, absolute=None\)"):
        bounded()
    with pytest.raises(PlanError, match="is not valid: pass one of them, a positive"):
        bounded(relative=-1.0)
    store = CodecStore(MemoryStore(), "bfloat16")
    program = retape.Program(lambda x, k: x, lambda x, k, g: g, verify="full")
    with pytest.raises(PlanError, match="`verify='full'` compares states to the bit"):
        retape.adjoint(program, 1.0, seed=np.copy, steps=1, store=store)


def test_a_package_that_is_missing_is_named(monkeypatch):
    before = CodecStore(MemoryStore(), "lossless")
    before.put(Place(0, 0), SMOOTH, SMOOTH.nbytes)
    monkeypatch.setattr("retape._extras.find_spec", lambda name: None)
    monkeypatch.setattr("retape.storage._codecs._packers.find_spec", lambda name: None)
    with pytest.raises(retape.MissingPackageError, match=r"`zstandard` cannot.*codecs"):
        before.get(Place(0, 0))
    # Without Zstandard, zlib.
    inner = MemoryStore()
    store = CodecStore(inner, "lossless")
    store.put(Place(0, 0), SMOOTH, SMOOTH.nbytes)
    assert "zlib+" in inner.get(Place(0, 0))[1]
    assert (store.get(Place(0, 0)) == SMOOTH).all()

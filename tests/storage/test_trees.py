"""Trees of arrays: what a copy, a digest and a file keep of them."""

import io
import sys
from enum import IntEnum

import ml_dtypes
import numpy as np
import pytest

import retape
from retape import SnapshotError, StoreError
from retape.storage import Place, copy_tree, fingerprint, tree_nbytes
from tests.storage.files import WAYS, file_system, through_a_file, written
from tests.storage.kinds import Fields, Point, Slotted, Vector

_KINDS = sys.modules[Point.__module__]


def long(*shape):
    return np.arange(float(np.prod(shape))).reshape(shape)


WHOLE = [
    long(2, 3),
    np.asfortranarray(long(2, 3)),
    np.zeros((0, 3), np.complex64),
    np.array(7, np.int8),
    np.arange(3, dtype=">i8"),
    np.zeros(2, [("a", "f8"), ("b", "i4")]),
    np.array(["2020-01-01"], "M8[D]"),
    np.ones(3, "g"),
]
ARRAYS = [
    *WHOLE,
    long(2, 3, 4).transpose(2, 0, 1),
    long(4, 6)[::-2, 1::2],
    long(4, 6).T[:, ::-1],
    np.broadcast_to(long(3), (4, 3)),
    np.lib.stride_tricks.sliding_window_view(long(8), 3),
    np.zeros((0, 3))[:, ::2],
    np.arange(6, dtype=">f4")[::2],
    np.zeros(3, np.dtype([("a", "i1"), ("b", "f8", (2,))], align=True))[::-1],
    np.arange(4).astype("datetime64[D]")[::2],
    *(long(2, 3).astype(name) for name in ("bfloat16", "float8_e4m3fn", "int4")),
]


def named(array):
    return f"{array.dtype}{array.shape}{array.strides}"


@pytest.mark.parametrize("again", WAYS)
@pytest.mark.parametrize("array", ARRAYS, ids=named)
def test_the_memory_layout_of_an_array_is_kept(again, array):
    made = again({"x": array})["x"]
    assert made.strides == array.strides or not array.size
    assert made.dtype == array.dtype
    assert made.shape == array.shape and (made == array).all()
    assert not np.may_share_memory(made, array)
    assert fingerprint(made) == fingerprint(array)
    assert again(made).strides == made.strides


@pytest.mark.parametrize("array", WHOLE, ids=named)
def test_numpy_itself_reads_every_array_of_a_file(array):
    with np.load(io.BytesIO(file_system().cat_file(written(array)[1]))) as members:
        found = members["array0"]
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.tobytes() == array.tobytes()


@pytest.mark.parametrize("again", WAYS)
def test_numbers_and_texts_are_kept(again):
    numbers = np.float32(0.1), ml_dtypes.bfloat16(5.0), 10**40, 0.1 - 0.2j
    (*found, rest), texts = again(((*numbers, [2.5, None, True]), {"a": ("text",)}))
    assert list(map(type, found)) == list(map(type, numbers))
    assert tuple(found) == numbers and rest == [2.5, None, True]
    assert type(texts["a"]) is tuple and texts == {"a": ("text",)}


@pytest.mark.parametrize("again", WAYS)
def test_arrays_that_overlap_still_do(again):
    whole = long(12)
    state = (whole, whole[2:5], [whole], whole.reshape(3, 4)[:, 1], long(2))
    one, inner, (same,), column, other = again(state)
    inner[0] = -1.0
    column[0] = -2.0
    assert one[2] == same[2] == -1.0 and one[1] == same[1] == -2.0
    assert not np.may_share_memory(one, other) and whole[2] == 2.0
    assert tree_nbytes(whole[::2]) == 88 and tree_nbytes(whole) == 96
    assert tree_nbytes((np.zeros(4), 1, {"a": 2.0}, 1j)) == 64


def test_digests_tell_small_differences():
    one = np.zeros(3)
    assert fingerprint(one) == fingerprint(one.copy())
    others = [
        np.array([0.0, -0.0, 0.0]),
        one.reshape(3, 1),
        one.astype(np.float32),
        (0, 0),
        [0, 0],
    ]
    assert len({fingerprint(tree) for tree in (one, *others)}) == 6


@pytest.mark.parametrize("kind", [np.longdouble, np.clongdouble])
@pytest.mark.parametrize("order", ["=", "S"])
def test_padding_is_no_part_of_a_digest(kind, order):
    def made(filling):
        memory = np.full(4 * np.dtype(kind).itemsize, filling, np.uint8)
        array = memory.view(np.dtype(kind).newbyteorder(order))
        array[...] = [1, 2, -0.1, np.inf]
        return array

    one, other = made(0), made(255)
    assert fingerprint(one) == fingerprint(other)
    assert through_a_file(one).tolist() == one.tolist()
    other[2] = np.nextafter(other[2].real, np.longdouble(1))
    assert fingerprint(one) != fingerprint(other)


def test_padding_of_a_structured_type_is_no_part_of_a_digest():
    kind = np.dtype([("a", "i1"), ("b", [("c", "f8"), ("d", "i2")])], align=True)
    one = np.zeros(3, kind)
    other = np.full(3 * kind.itemsize, 255, np.uint8).view(kind)
    other["a"], other["b"]["c"], other["b"]["d"] = 0, 0, 0
    assert one.tobytes() != other.tobytes() and fingerprint(one) == fingerprint(other)
    other["b"]["d"][1] = 1
    assert fingerprint(one) != fingerprint(other)


@pytest.mark.parametrize("again", WAYS)
def test_classes_of_the_users_are_kept(again):
    u = np.arange(3.0)
    point, fields, slotted = again((Point(u, 2), Fields(u, 3.0), Slotted(u)))
    assert type(point) is Point and point.y == 2
    assert type(fields) is Fields and (fields.p, fields.derived) == (3.0, 7.0)
    assert fields.beside == [3.0] and slotted.u.tolist() == u.tolist()
    # The array in three places is still one, in memory of its own.
    point.x[0] = 9.0
    assert fields.u[0] == slotted.u[0] == 9.0 and u[0] == 0.0
    vector = Vector(u)
    made = again({"v": vector})["v"]
    assert type(made) is Vector and made.u.tolist() == u.tolist()
    assert made.u is not u and tree_nbytes(vector) == 24
    assert fingerprint(made) == fingerprint(vector)


def test_a_class_is_registered_for_the_process():
    class Foreign:
        def __init__(self, u):
            self.u = u

    with pytest.raises(StoreError, match="`Foreign` cannot be in a state.*register_s"):
        copy_tree(Foreign(1))
    retape.register_state(
        Foreign,
        copy=lambda value: Foreign(value.u + 0),
        nbytes=lambda value: 8,
        to_arrays=lambda value: value.u,
        from_arrays=Foreign,
    )
    assert copy_tree(Foreign(1)).u == 1 and tree_nbytes(Foreign(1)) == 8
    with pytest.raises(StoreError, match="`.*Foreign` cannot be written, because anot"):
        through_a_file(Foreign(1))
    with pytest.raises(StoreError, match=r"`register_state\('Foreign'\)` is not valid"):
        retape.register_state("Foreign", copy=1, nbytes=1, to_arrays=1, from_arrays=1)


@pytest.mark.parametrize(
    ("name", "new"), [("Point", "Missing"), ("kinds:Point", "subprocess:Popen")]
)
def test_a_file_imports_nothing_and_makes_no_object_that_is_no_state(name, new):
    store, file = written(Point(1, 2))
    data = file_system().cat_file(file)
    assert name.encode() in data
    file_system().pipe_file(file, data.replace(name.encode(), new.encode()))
    with pytest.raises(SnapshotError):
        store.get(Place(0, 0, "disk"))
    # Nor where the checksum is right.
    store, file = written(Point(1, 2))
    del sys.modules[_KINDS.__name__]
    try:
        with pytest.raises(SnapshotError, match="is not there, or is not a dataclass"):
            store.get(Place(0, 0, "disk"))
    finally:
        sys.modules[_KINDS.__name__] = _KINDS


def twice(tree, other=None):
    """The sum of two gradients of a cost: at the start, and at the end."""
    gradients = iter([tree, tree if other is None else other])
    program = retape.Program(
        lambda x, k: x,
        lambda x, k, g: g,
        cost=lambda x, k: 0.0,
        cost_gradient=lambda x, k: next(gradients),
    )
    return retape.adjoint(program, tree, steps=1).cotangent


def test_sums_of_trees():
    both = twice({"a": np.ones(2), "b": (1.0, Point(2.0, Vector(np.ones(1))))})
    assert both["a"].tolist() == [2.0, 2.0] and both["b"][1].y.u.tolist() == [2.0]
    for other in ({"a": 1}, (1.0,), [1.0, 2.0]):
        with pytest.raises(retape.MachineError, match="step"):
            twice((1.0, 2.0), other)


class Colour(IntEnum):
    RED = 1


LOOP: list = []
LOOP.append(LOOP)
NO_STATES = [
    *((value, "cannot be in a state") for value in (Colour.RED, object(), {1}, len)),
    (bytearray(b"x"), "cannot be in a state"),
    (np.ma.MaskedArray([1.0, 2.0], mask=[0, 1]), "`MaskedArray` cannot be in a state"),
    (np.ones((1, 2)).view(np.matrix), "`matrix` cannot be in a state"),
    (np.rec.fromarrays([[1, 2]], names="n"), "`recarray` cannot be in a state"),
    (LOOP, "contains itself, or nests too deeply"),
]


@pytest.mark.parametrize(("value", "said"), NO_STATES)
def test_what_is_no_state_is_refused(value, said):
    for call in (copy_tree, tree_nbytes, fingerprint):
        with pytest.raises(StoreError, match=said):
            call([1.0, value])

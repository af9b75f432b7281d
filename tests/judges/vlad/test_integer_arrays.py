"""Arrays of ints: they are read as they are, and no derivative is taken by them."""

from typing import Any

import numpy as np
import pytest

from retape import native
from tests.judges.vlad.judging import REFUSED, alike, judge

# pyright: basic


def gather(a, idx):
    s = 0.0
    for i in range(len(idx)):
        s = s * 0.7 + a[idx[i]]
    return s


def test_an_array_of_ints_is_read_as_it_is() -> None:
    judge(gather, (np.arange(4.0), np.array([0, 2, 1])), by=(0,))
    table = np.array([[0, 1], [1, 0]])
    judge(lambda a, t: a[t[1, 0]] * t[0, 1] + t[-1, -1], (np.ones(2), table), by=(0,))
    judge(lambda t: (t, t.shape, len(t)), (table,))


@pytest.mark.parametrize(
    "array",
    [
        np.array([1, 2], np.int32),
        np.array([1, 2], np.float32),
        np.array([1, 2**60]),
        np.array([-(2**63), 0]),
        np.array([True, False]),
    ],
    ids=str,
)
def test_an_array_of_another_type_is_right_as_a_float(array: Any) -> None:
    def first(a):
        return a[0] * 0.5

    with pytest.raises(REFUSED, match=r"pass\s+`a.astype\(float\)`"):
        native.function(first, engine="interpreter")(array)
    judge(first, (array.astype(float),), by=())


def test_an_array_of_ints_has_no_derivative() -> None:
    args = np.arange(4.0), np.array([0, 2, 1])
    with pytest.raises(native.CompileError, match="choose others with `argnums`"):
        native.grad(gather, (0, 1), engine="interpreter")(*args)
    found = native.grad(gather, 0, engine="interpreter")(*args)
    assert alike(found, np.array([0.7**2, 1.0, 0.7, 0.0]))
    _, (again,) = native.vjp(gather, args, 1.0, argnums=(0,), engine="interpreter")
    assert alike(again, found)

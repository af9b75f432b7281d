"""Compiled functions: layouts of arrays, and the module as a decorator."""

from typing import Any

import numpy as np
import pytest

from retape import native

# pyright: basic


def test_the_module_is_a_decorator() -> None:
    @native  # pyright: ignore[reportCallIssue]
    def local(x):
        return x * 2.0

    assert repr(local).startswith("<native function test_the_module_is_a_decorator")
    assert local.__name__ == "local"
    assert local(4.0) == 8.0
    assert native.grad(local)(4.0) == 2.0


def squares(a):
    return np.sum(a * a)


def total(a):
    result = 0.0
    for x in a.ravel():
        result += x * x
    return result


@pytest.mark.parametrize("f", [squares, total])
def test_arrays_of_every_layout_are_what_they_hold(f: Any) -> None:
    base = np.arange(12.0)
    table = np.arange(24.0).reshape(4, 6) / 7
    read_only = base.copy()
    read_only.setflags(write=False)
    odd = np.frombuffer(b"\0" + base.tobytes(), dtype=float, offset=1)
    layouts = [
        *(base[::3], base[::-1], base[:0], read_only, odd, np.broadcast_to(2.0, 3)),
        *(table.T[1:4, ::2], np.asfortranarray(table), table[::2, :3], table[:, 1]),
    ]
    gradient = native.grad(f)
    for a in layouts:
        assert gradient(a).tolist() == (2.0 * a).tolist()

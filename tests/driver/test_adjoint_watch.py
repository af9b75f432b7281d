"""A tree is within a bound exactly if its largest number is, however it is asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from retape._adjoint_watch import CotangentWatch
from retape.storage._trees._bounded import is_in_reach, is_within
from retape.storage._trees._magnitude import largest
from retape.storage._trees._rows import Rows

GEN = np.random.default_rng(0)
TREES: list[Any] = [
    GEN.normal(size=7),
    GEN.normal(size=(3, 5)).astype(np.float32)[:, ::2],
    GEN.normal(size=20_000),
    GEN.normal(size=4).astype(np.float16),
    GEN.normal(size=3) * 1j,
    np.float64(-2.5),
    torch.linspace(-3.0, 1.0, 9),
    torch.ones(3, dtype=torch.bfloat16),
    (1.5, {"a": [np.ones(3), 2], "b": -0.5}),
    np.zeros(0),
    [],
    "text",
]


@pytest.mark.parametrize("tree", TREES, ids=range(len(TREES)))
def test_within_a_bound(tree: Any) -> None:
    most = largest(tree)
    for factor in (0.1, 0.7, 0.999, 1.0, 1.001, 1.5, 1e3):
        assert is_within(tree, factor * most) == (most <= factor * most)
    assert is_in_reach(tree)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("bound", [0.0, 1.0, 1e200, np.inf])
def test_what_is_not_finite_is_within_no_finite_bound(bad: float, bound: float) -> None:
    for tree in (bad, np.asarray([1.0, bad]), [0.0, np.full(9, bad, np.float32)]):
        assert not is_within(tree, bound)
    assert is_within([1e308, np.asarray([-1e308])], np.inf)


def test_rows_are_asked_like_their_trees() -> None:
    rows = Rows()
    trees = [{"x": GEN.normal(size=3), "y": (float(k), 3)} for k in range(Rows.COUNT)]
    put = rows.putter(trees[0])
    assert put is not None and all(put(k, tree) for k, tree in enumerate(trees))
    assert [rows.largest(k) for k in range(Rows.COUNT)] == list(map(largest, trees))
    assert rows.within(10, 9.0) and not rows.within(11, 9.0)


def test_rows_take_nothing_else() -> None:
    rows = Rows()
    put = rows.putter({"x": np.zeros(3), "y": (1.0, 3)})
    assert put is not None
    for other in (
        {"x": np.zeros(3), "z": (1.0, 3)},
        {"x": np.zeros(3)},
        {"x": np.zeros(4), "y": (1.0, 3)},
        {"x": np.zeros(3, np.float32), "y": (1.0, 3)},
        {"x": np.zeros(3), "y": [1.0, 3]},
        {"x": np.zeros(3), "y": (1, 3)},
    ):
        assert not put(0, other)
    for alone in (
        1j,
        np.zeros(3, complex),
        (np.float64(1.0),),
        torch.ones(2).bfloat16(),
    ):
        assert Rows().putter(alone) is None
    put = Rows().putter(torch.zeros(2))
    assert put is not None and put(0, torch.ones(2)) and not put(0, np.ones(2))


@pytest.mark.parametrize("at", [0, 1, 62, 63, 64, 65, 199])
def test_the_first_of_all_that_is_not_within(at: int) -> None:
    """Brute force: every cotangent is measured."""
    sizes = {k: 1.0 for k in range(301)} | {at: 1e9, max(0, at - 40): 1e9}
    watch = CotangentWatch(1e6)
    for k in reversed(range(301)):
        watch(k, np.full(2, sizes[k]))
    watch.check()
    assert watch.ill == at and watch.first == 1.0

"""The first cotangent that is too large is found, in any tree and at any step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import retape

STEPS = 150
TREES: dict[str, Callable[[float], Any]] = {
    "array": lambda size: np.full(7, size),
    "rows with gaps": lambda size: np.full((3, 5), size, np.float32)[:, ::2],
    "complex": lambda size: np.full(3, size * 1j),
    "number": float,
    "NumPy's number": np.float64,
    "tensor": lambda size: torch.full((9,), size),
    "bfloat16": lambda size: torch.full((3,), size, dtype=torch.bfloat16),
    "tree": lambda size: (1.5, {"a": [np.full(3, size), 0.5], "b": -0.5}),
    "last of many": lambda size: np.append(np.zeros(20_000), -size),
}


@pytest.mark.parametrize("bad", [1e9, np.nan])
@pytest.mark.parametrize("tree", TREES)
def test_the_first_of_all_that_is_too_large(tree: str, bad: float) -> None:
    for at in (1, 64, 127):
        sizes = {at: bad, max(0, at - 40): bad}
        found = retape.diagnose(
            retape.Program(
                lambda x, k: x,
                lambda x, k, g, sizes=sizes: TREES[tree](sizes.get(k, 1.0)),
            ),
            1.0,
            seed=lambda x: TREES[tree](1.0),
            steps=STEPS,
        ).health
        assert found is not None and found.fault is not None
        assert found.fault.step == at


@pytest.mark.parametrize("tree", TREES)
def test_what_stays_within_the_growth_is_no_fault(tree: str) -> None:
    found = retape.diagnose(
        retape.Program(lambda x, k: x, lambda x, k, g: TREES[tree](9e5)),
        1.0,
        seed=lambda x: TREES[tree](1.0),
        steps=STEPS,
    ).health
    assert found is not None and found.fault is None

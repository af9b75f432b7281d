"""Wrong calls of the front ends: a typed error that says what to write."""

from collections.abc import Callable

import pytest
import torch

import retape.torch as under
from retape import PlanError

MODEL, X = torch.nn.Linear(3, 3), torch.ones(2, 3)

CALLS: list[tuple[Callable[[], object], str]] = [
    (lambda: under.recompute("1MB"), r"Say `recompute\(memory='1MB'\)`"),
    (lambda: under.recompute(2), r"Say `recompute\(memory=2\)`"),
    (lambda: under.recompute(MODEL), r'`recompute\(memory="1GB"\)\(function\)`'),
    (lambda: under.recompute(), "give exactly one of them"),
    (lambda: under.recompute(memory="lots"), "is not an amount of memory"),
    (lambda: under.recompute(memory=True), "is not an amount of memory"),
    (lambda: under.recompute(snapshots="4"), "`snapshots='4'` is not a whole number"),
    (lambda: under.recompute(snapshots=2.5), "`snapshots=2.5` is not a whole number"),
    (lambda: under.recompute(snapshots=4, stage="x"), "`stage='x'` is not a whole"),
    (lambda: under.recompute(memory=1, policy=5), "is no operator of the dispatcher"),
    (lambda: under.recompute(memory="1MB")(MODEL(X)), "the function itself"),
    (lambda: under.checkpoint("1MB"), "Pass the function first"),
    (lambda: under.estimate("1MB"), "Pass the module or function first"),
    (lambda: under.estimate(MODEL(X)), "`Tensor`, which cannot be called"),
]  # type: ignore[arg-type]


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_a_wrong_call_says_what_to_write(number: int) -> None:
    call, text = CALLS[number]
    with pytest.raises(PlanError, match=text):
        call()

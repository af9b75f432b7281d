"""Snapshots in host memory and on disk: the same bits, fewer bytes, typed errors."""

from pathlib import Path
from typing import Any

import pytest
import torch

import retape
import retape.torch
from retape import DiskStore, SnapshotError, StoreError
from tests.storage.files import Noted

UNIT = 64 * 64 * 4
STATE, DRAWS = 5056, 60
"""Bytes of the generator's state that each draw keeps, and draws of a run."""
ROOM = 14 * UNIT + DRAWS * STATE


def run(w: torch.Tensor, under: Any, length: int = 60) -> torch.Tensor:
    with under:
        h = torch.ones(64, 64)
        for _ in range(length):
            h = torch.tanh(h @ w)
            h = torch.dropout(h, 0.1, True)
        return h.square().sum()


def gradient(under: Any, seed: int = 0) -> torch.Tensor:
    torch.manual_seed(seed)
    w = (0.1 * torch.randn(64, 64)).requires_grad_()
    run(w, under).backward()
    assert w.grad is not None
    return w.grad


@pytest.mark.parametrize("states", [9, 11, 14, 20])
def test_what_is_in_a_store_is_not_given_up_for_room(states: int) -> None:
    """By rules: it takes none, and each operator is run again at most once."""
    memory = states * UNIT + DRAWS * STATE
    under = retape.torch.recompute(memory=memory, store="cpu", verify=True)
    assert torch.equal(gradient(under), gradient(torch.enable_grad()))
    assert under.report.thinned == 0
    assert 0 < under.report.recomputed <= under.report.steps


def test_a_store_that_is_full_says_so(tmp_path: Path) -> None:
    store = DiskStore(tmp_path, capacity_bytes=3 * UNIT)
    with pytest.raises(StoreError, match="`capacity_bytes` is"):
        gradient(retape.torch.recompute(memory=ROOM, store=store))


def test_a_damaged_snapshot_is_an_error_in_the_backward(tmp_path: Path) -> None:
    torch.manual_seed(0)
    w = (0.1 * torch.randn(64, 64)).requires_grad_()
    store = DiskStore(tmp_path)
    loss = run(w, retape.torch.recompute(snapshots=9, store=store))
    for file in tmp_path.glob("step-*"):
        file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(SnapshotError, match="step-.*run the forward once more"):
        loss.backward()
    under = retape.torch.recompute(snapshots=9, store=store)
    assert torch.equal(gradient(under), gradient(torch.enable_grad()))
    del loss  # what it had put away is none of the new run's
    assert not list(tmp_path.glob("step-*"))


def test_what_the_backward_reads_is_read_ahead(tmp_path: Path) -> None:
    """Which snapshot it goes back to next is known while a part is run again."""
    store = Noted(DiskStore(tmp_path))
    under = retape.torch.recompute(snapshots=9, stage=8, store=store)
    assert torch.equal(gradient(under), gradient(torch.enable_grad()))
    told = store.reads()
    assert len(told) > 5 and sum(told) > len(told) / 2


def test_plans_of_a_run_of_unknown_length() -> None:
    expected = gradient(torch.enable_grad())
    for plan in (
        retape.fixed_space(snapshots=4),
        retape.fixed_space(snapshots=4, stage=10),
        retape.logarithmic(stage=8),
        retape.within(ROOM),
    ):
        under = retape.torch.recompute(plan=plan)
        assert torch.equal(gradient(under), expected)
        assert under.report.recomputed > 0

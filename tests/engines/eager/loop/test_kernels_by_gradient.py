"""Functions that round in another way where no graph is made."""

import contextlib

import pytest
import torch

from retape import torch as retape_torch


def gradients(frozen: bool, under: contextlib.AbstractContextManager[object]) -> list:
    torch.manual_seed(0)
    first, model = torch.nn.Linear(6, 6), torch.nn.LSTM(6, 7, num_layers=2)
    model.requires_grad_(not frozen)
    x = torch.randn(11, 3, 6)
    with under:
        loss = model(torch.tanh(first(x)))[0].square().sum()
    loss.backward()
    found = [p.grad for p in (*first.parameters(), *model.parameters())]
    return [loss.detach(), *(g for g in found if g is not None)]


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("snapshots", [1, 3])
def test_an_lstm_in_a_loop_has_the_bits_of_the_plain_one(
    frozen: bool, snapshots: int
) -> None:
    under = retape_torch.recompute(mode="loop", snapshots=snapshots, stage=1)
    ours = gradients(frozen, under)
    plain = gradients(frozen, contextlib.nullcontext())
    assert len(ours) == len(plain) >= 3
    assert all(map(torch.equal, ours, plain))

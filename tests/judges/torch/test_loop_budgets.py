"""Budgets of `mode="loop"` hold by the allocator's count, or are refused by name."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import retape.torch  # noqa: E402
from retape.torch import recompute  # noqa: E402
from tests.judges.torch.allocator import peak_bytes  # noqa: E402

TURNS = 6
Layer = tuple[nn.Module, Any]
# A layer, and what it is given.
LAYERS: dict[str, Callable[[], Layer]] = {
    "linear": lambda: (nn.Linear(16, 16), torch.randn(32, 16)),
    "norm": lambda: (nn.LayerNorm(16), torch.randn(64, 16)),
    "convolution": lambda: (nn.Conv1d(8, 8, 3, padding=1), torch.randn(4, 8, 32)),
    "softmax": lambda: (nn.Softmax(-1), torch.randn(64, 16)),
    "LSTM": lambda: (nn.LSTM(16, 16), torch.randn(12, 4, 16)),
    "LSTM of four": lambda: (nn.LSTM(16, 16, num_layers=4), torch.randn(12, 4, 16)),
    "GRU": lambda: (nn.GRU(16, 16, num_layers=3), torch.randn(12, 4, 16)),
    "RNN": lambda: (nn.RNN(16, 16, num_layers=4), torch.randn(24, 4, 16)),
    "RNN of ReLU": lambda: (
        nn.RNN(16, 16, nonlinearity="relu"), torch.randn(24, 4, 16),
    ),
    "attention": lambda: (
        nn.MultiheadAttention(16, 4, batch_first=True), torch.randn(2, 32, 16),
    ),
}  # fmt: skip
FUSED = {"LSTM", "LSTM of four", "GRU", "RNN", "RNN of ReLU", "attention"}


def loss_of(net: nn.Module, x: Any) -> Any:
    for _ in range(TURNS):
        made = net(x, x, x) if isinstance(net, nn.MultiheadAttention) else net(x)
        x = (made[0] if isinstance(made, tuple) else made).mul(1.1).tanh()
    return x.square().sum()


def step(net: nn.Module, x: Any, **limits: Any) -> Any:
    x = x.clone().requires_grad_()
    x.grad = torch.zeros_like(x)
    with recompute(mode="loop", **limits):
        loss = loss_of(net, x)
    loss.backward()
    return loss.detach()


def least(net: nn.Module, x: Any) -> int:
    with pytest.raises(retape.BudgetError) as refused:
        step(net, x, memory=1)
    assert refused.value.least is not None
    return refused.value.least


@pytest.mark.parametrize("name", LAYERS)
def test_a_budget_holds_or_is_refused_by_name(name: str) -> None:
    torch.manual_seed(0)
    net, x = LAYERS[name]()
    for each in net.parameters():
        each.grad = torch.zeros_like(each)
    if name in FUSED:
        with pytest.raises(retape.UnsupportedError, match="Give `snapshots` instead"):
            step(net, x, memory="1MB")
        return
    for memory in (n := least(net, x), 2 * n):
        assert peak_bytes(lambda: step(net, x, memory=memory)) <= memory  # noqa: B023


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_snapshots_are_exact(name: str, frozen: bool) -> None:
    torch.manual_seed(0)
    net, x = LAYERS[name]()
    x.requires_grad_()
    net.requires_grad_(not frozen)
    leaves = [x, *(each for each in net.parameters() if not frozen)]
    plain = loss_of(net, x)
    with recompute(mode="loop", snapshots=2, stage=2):
        found = loss_of(net, x)
    assert torch.equal(plain, found)
    pair = [torch.autograd.grad(loss, leaves) for loss in (plain, found)]
    assert all(map(torch.equal, *pair))

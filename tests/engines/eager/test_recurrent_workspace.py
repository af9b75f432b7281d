"""What fused recurrent layers take inside, as the allocator counts it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import retape.torch
from retape._errors import BudgetError
from retape.engines.eager._recurrent_workspace import (
    recurrent_result_bytes,
    recurrent_workspace_bytes,
)
from tests.engines.eager.support.allocator import peak_bytes

# Steps, sequences, numbers in and out.
SIZES = {
    "plain": (40, 8, 32, 64),
    "one sequence": (100, 1, 32, 64),
    "one step": (1, 16, 32, 64),
    "wide input": (10, 4, 512, 16),
    "wide state": (10, 4, 16, 512),
    "odd": (30, 3, 5, 7),
}


def layer(name: str, transposed: bool = False) -> tuple[list[Any], Tensor]:
    """The arguments of one layer, and a cotangent of its first result."""
    steps, batch, entering, hidden = SIZES[name]
    torch.manual_seed(0)
    x = torch.randn(steps, batch, entering)
    g = torch.randn(steps, batch, hidden)
    if transposed:
        x, g = (each.transpose(0, 1).contiguous().transpose(0, 1) for each in (x, g))
    weights = [torch.randn(4 * hidden, n) for n in (entering, hidden)]
    weights += [torch.zeros(4 * hidden) for _ in range(2)]
    for each in (x, *weights):
        each.requires_grad_()
    state = [torch.zeros(1, batch, hidden) for _ in range(2)]
    tail = [False, [], 2, hidden, 1, True, False, False, True]
    return [x, *weights, *state, *tail], g


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("name", SIZES)
def test_no_recurrent_layer_takes_more_than_is_counted(
    name: str, transposed: bool
) -> None:
    args, g = layer(name, transposed)
    run = torch.ops.aten.mkldnn_rnn_layer
    results: list[tuple[Tensor, ...]] = [run(*args)]
    taken = peak_bytes(lambda: results.append(run(*args)))
    made = sum(each.nbytes for each in results[0])
    assert taken <= recurrent_result_bytes(args)

    found = recurrent_workspace_bytes(args)
    copies = args[0].nbytes + args[1].nbytes + args[2].nbytes + results[0][0].nbytes
    assert taken <= made + copies + found.forward

    leaves = args[:5]
    back = peak_bytes(
        lambda: torch.autograd.grad(results[0][0], leaves, g, retain_graph=True)
    )
    gradients = sum(each.nbytes for each in leaves)
    counted = copies + found.forward + args[0].nbytes + found.reverse
    assert back <= gradients + counted + results[0][1].nbytes * 2


MODELS: dict[str, Callable[[], nn.Module]] = {
    "LSTM": lambda: nn.LSTM(32, 64, num_layers=3),
    "LSTM both ways": lambda: nn.LSTM(32, 64, num_layers=2, bidirectional=True),
}


@pytest.mark.parametrize("name", MODELS)
def test_recurrent_layers_are_held_in_less_than_plain_takes(
    name: str,
) -> None:
    torch.manual_seed(0)
    net, x = MODELS[name](), torch.randn(50, 16, 32)
    for each in net.parameters():
        each.grad = torch.zeros_like(each)

    def loss() -> Tensor:
        return net(x)[0].square().mean()

    loss().backward()
    plain = peak_bytes(lambda: loss().backward())
    expected = [each.grad.clone() for each in net.parameters()]
    with pytest.raises(BudgetError) as refused, retape.torch.recompute(memory=1):
        _alive = loss()
    least = refused.value.least
    assert least is not None
    for memory in (least, 19 * plain // 20):
        under = retape.torch.recompute(memory=memory)(loss)
        for _ in range(3):
            for each in net.parameters():
                torch.nn.init.zeros_(each.grad)
            assert peak_bytes(lambda run=under: run().backward()) <= memory
        found = [each.grad for each in net.parameters()]
    # Plain ran twice into the same gradients.
    assert all(torch.equal(2 * a, b) for a, b in zip(found, expected, strict=True))

"""Five steps of training, as users write them, in budgets: the same bits throughout."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from retape._errors import BudgetError
from retape.torch import recompute

Task = tuple[nn.Module, Callable[[], Tensor]]


def transformer() -> Task:
    model = nn.Transformer(32, 2, 2, 2, 64, batch_first=True)
    source, target = torch.randn(2, 12, 32), torch.randn(2, 9, 32)
    mask = model.generate_square_subsequent_mask(9)
    return model, lambda: model(source, target, tgt_mask=mask).square().mean()


def packed_sequences() -> Task:
    model = nn.LSTM(8, 16, 2, dropout=0.2, bidirectional=True)
    lengths = torch.tensor([20, 15, 9, 3])
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(20, 4, 8), lengths)
    return model, lambda: model(packed)[0].data.square().mean()


def spectral_norms() -> Task:
    """Buffers are updated in the forward."""
    model = nn.Sequential(
        *(parametrizations.spectral_norm(nn.Linear(16, 16)) for _ in range(4)),
        *(parametrizations.weight_norm(nn.Linear(16, 16)) for _ in range(4)),
    )
    x = torch.randn(64, 16)
    return model, lambda: model(x).square().mean()


def complex_numbers() -> Task:
    kind = torch.complex64
    model = nn.ParameterList(torch.randn(16, 16, dtype=kind) / 4 for _ in range(6))
    x = torch.randn(32, 16, dtype=kind)

    def loss() -> Tensor:
        h = x
        for weight in model:
            h = torch.fft.fft(h @ weight, norm="ortho")
            h = h / (1 + h.abs())
        return h.abs().square().mean()

    return model, loss


def sparse_gradients() -> Task:
    table = nn.Embedding(40, 16, sparse=True)
    layers = nn.Sequential(*(nn.Linear(16, 16) for _ in range(6)))
    index = torch.arange(64) * 7 % 40
    model = nn.ModuleList([table, layers])
    return model, lambda: layers(table(index)).tanh().square().mean()


def hooked() -> Task:
    model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(8)))
    for layer in model:
        layer.register_forward_hook(lambda module, given, found: found.tanh())
        layer.register_full_backward_hook(
            lambda module, given, found: tuple(
                g if g is None else 1.5 * g for g in given
            )
        )
    x = torch.randn(64, 16, requires_grad=True)
    return model, lambda: model(x).square().mean()


def functional() -> Task:
    model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(8)))
    x = torch.randn(64, 16)

    def loss() -> Tensor:
        shrunk = {name: each / 2 for name, each in model.named_parameters()}
        return torch.func.functional_call(model, shrunk, (x,)).square().mean()

    return model, loss


TASKS = [
    transformer, packed_sequences, spectral_norms, complex_numbers, sparse_gradients,
    hooked, functional,
]  # fmt: skip


def trained(task: Callable[[], Task], under: Callable[[], Any]) -> list[Tensor]:
    """Losses, parameters, buffers and the random state of five steps."""
    torch.manual_seed(0)
    model, loss_of = task()
    optimiser = torch.optim.SGD(model.parameters(), 0.1)
    found = []
    for _ in range(5):
        optimiser.zero_grad()
        with under():
            loss = loss_of()
        loss.backward()
        optimiser.step()
        found.append(loss.detach())
    return [*found, *model.state_dict().values(), torch.get_rng_state()]


@pytest.mark.parametrize("task", TASKS)
def test_five_steps_give_the_plain_bits(task: Callable[[], Task]) -> None:
    plain = trained(task, contextlib.nullcontext)
    with pytest.raises(BudgetError) as caught:
        trained(task, lambda: recompute(memory=1100))
    for factor in (1.0, 1.4):
        memory = int(factor * caught.value.least)
        found = trained(task, lambda memory=memory: recompute(memory=memory))
        assert len(found) == len(plain) and all(map(torch.equal, found, plain))

"""Models with a loss, as users write them; what a seed makes of them is the same."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

Task = tuple[nn.Module, Callable[[], Tensor]]
MODELS: dict[str, Callable[[], Task]] = {}
# An estimate has no values, and so no lengths of packed sequences, no kernels of LSTMs,
# and no mask to look into.
NOT_ESTIMATED = {"packed_sequences", "sparse_gradients", "transformer"}


def model(function: Callable[[], Task]) -> Callable[[], Task]:
    MODELS[function.__name__] = function
    return function


def squared(net: nn.Module, x: Tensor) -> Task:
    return net, lambda: net(x).square().sum()


@model
def perceptron() -> Task:
    layers = [m for _ in range(20) for m in (nn.Linear(64, 64), nn.ReLU())]
    return squared(nn.Sequential(*layers), torch.randn(128, 64))


@model
def convolution_blocks() -> Task:
    """Statistics are written in place, activations too, and dropout draws."""
    layers = [
        nn.Sequential(
            nn.Conv2d(8, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.Dropout(0.1),
        )
        for _ in range(6)
    ]
    return squared(nn.Sequential(*layers), torch.randn(2, 8, 12, 12))


@model
def encoder() -> Task:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    return squared(nn.TransformerEncoder(layer, 3), torch.randn(2, 16, 32))


class Heads(nn.Module):
    """Attention by hand; without values, `permute` of the parts asks for a device."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 4, 8).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1)).softmax(-1)
        return x + self.out((scores @ v).transpose(1, 2).reshape(x.shape))


@model
def heads() -> Task:
    return squared(nn.Sequential(*[Heads() for _ in range(4)]), torch.randn(2, 16, 32))


class Scan(nn.Module):
    """A selective scan, written as a loop: its results are read at its end."""

    def __init__(self, width: int, state: int) -> None:
        super().__init__()
        self.enter = nn.Linear(width, 2 * width)
        self.decay = nn.Parameter(torch.rand(width, state))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        step, u = self.enter(self.norm(x)).chunk(2, -1)
        h = torch.zeros(x.shape[0], *self.decay.shape)
        seen: list[Tensor] = []
        for t in range(x.shape[1]):
            h = torch.exp(-step[:, t, :, None].sigmoid() * self.decay) * h
            h = h + u[:, t, :, None]
            seen.append(h.sum(-1))
        return x + torch.stack(seen, 1)


@model
def scan() -> Task:
    return squared(nn.Sequential(Scan(16, 8), Scan(16, 8)), torch.randn(2, 8, 16))


@model
def shared_products() -> Task:
    """A parameter is read at each step, by a view: its sum is as large as itself."""
    net, x = nn.Linear(64, 64, bias=False), torch.ones(2, 64)

    def loss() -> Tensor:
        h = x
        for _ in range(40):
            h = torch.tanh(h @ net.weight.t())
        return h.sum()

    return net, loss


@model
def wide_values_on_the_way() -> Task:
    """Blocks that save wide values on the way from a narrow state to the next."""
    net = nn.Linear(2, 64)
    dropout = nn.Dropout(0.1)

    def loss() -> Tensor:
        state = net.weight
        for _ in range(4):
            scores = torch.sin(state @ state.t()).softmax(-1)
            state = state + dropout(dropout(scores) * torch.relu_(scores * 0.5) @ state)
        return state.square().sum() + net.bias.sum()

    return net, loss


@model
def skips() -> Task:
    """What two stages save is in each of them."""
    net = nn.Sequential(*(nn.Linear(32, 32, bias=False) for _ in range(16)))
    x = torch.randn(64, 32)

    def loss() -> Tensor:
        states = [x]
        for k, layer in enumerate(net):
            state = layer(states[-1]).tanh()
            states.append(state if k < 5 else state * states[k - 4])
        return states[-1].square().mean()

    return net, loss


@model
def transformer() -> Task:
    net = nn.Transformer(32, 2, 1, 1, 64, batch_first=True)
    source, target = torch.randn(2, 12, 32), torch.randn(2, 9, 32)
    mask = net.generate_square_subsequent_mask(9)
    return net, lambda: net(source, target, tgt_mask=mask).square().mean()


@model
def packed_sequences() -> Task:
    net = nn.LSTM(8, 16, dropout=0.2, num_layers=2)
    lengths = torch.tensor([9, 6, 4, 2])
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(9, 4, 8), lengths)
    return net, lambda: net(packed)[0].data.square().mean()


@model
def spectral_norms() -> Task:
    """Buffers are updated in the forward."""
    net = nn.Sequential(
        *(parametrizations.spectral_norm(nn.Linear(16, 16)) for _ in range(4)),
        *(parametrizations.weight_norm(nn.Linear(16, 16)) for _ in range(4)),
    )
    return squared(net, torch.randn(64, 16))


@model
def sparse_gradients() -> Task:
    table = nn.Embedding(40, 16, sparse=True)
    layers = nn.Sequential(*(nn.Linear(16, 16) for _ in range(6)))
    index = torch.arange(64) * 7 % 40
    net = nn.ModuleList([table, layers])
    return net, lambda: layers(table(index)).tanh().square().mean()


@model
def hooked() -> Task:
    net = nn.Sequential(*(nn.Linear(16, 16) for _ in range(8)))
    for layer in net:
        layer.register_forward_hook(lambda module, given, found: found.tanh())
        layer.register_full_backward_hook(
            lambda module, given, found: tuple(
                g if g is None else 1.5 * g for g in given
            )
        )
    return squared(net, torch.randn(64, 16, requires_grad=True))


@model
def functional() -> Task:
    net = nn.Sequential(*(nn.Linear(16, 16) for _ in range(8)))
    x = torch.randn(64, 16)

    def loss() -> Tensor:
        shrunk = {name: each / 2 for name, each in net.named_parameters()}
        return torch.func.functional_call(net, shrunk, (x,)).square().mean()

    return net, loss


@model
def cubes() -> Task:
    """A cube needs much room and reads nothing but the state that it begins at."""
    net = nn.ModuleList(nn.Linear(48, 192, bias=False) for _ in range(8))
    x = torch.randn(16, 48)

    def loss() -> Tensor:
        state = x
        for wide, back in zip(net[::2], net[1::2], strict=True):
            y = wide(nn.functional.layer_norm(state, (48,)))
            y = 0.5 * y * (1 + torch.tanh(0.8 * (y + 0.045 * torch.pow(y, 3.0))))
            state = state + nn.functional.dropout(y @ back.weight, 0.1)
        return state.square().mean()

    return net, loss


@model
def read_twice() -> Task:
    """The cotangents of what is read in both loops wait for most of the backward."""
    net = nn.Linear(4096, 1, bias=False)

    def loss() -> Tensor:
        x = net.weight
        values = [torch.tanh(x * k) for k in range(16)]
        for _ in range(2):
            for value in values:
                x = x * value
        return x.sum()

    return net, loss

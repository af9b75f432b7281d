"""Modules: buffers, draws, writes in place, autocast, shared weights."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.judges.torch.hard.table import (
    Under,
    of,
    parameter,
    program,
    results,
    squared,
    trained,
)


@program
def in_place_activations(under: Under) -> list[Tensor]:
    model = nn.Sequential(
        *[m for _ in range(8) for m in (nn.Linear(24, 24), nn.ReLU(inplace=True))],
        nn.Linear(24, 24),
        nn.Dropout(0.2, inplace=True),
        nn.Linear(24, 24),
        nn.SiLU(inplace=True),
    )
    return squared(under, model, torch.randn(16, 24))


@program
def batch_norm_in_place_residual(under: Under) -> list[Tensor]:
    convs = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(5))
    norms = nn.ModuleList(nn.BatchNorm2d(4) for _ in range(5))
    x = torch.randn(3, 4, 7, 7)
    with under():
        h = x
        for conv, norm in zip(convs, norms, strict=True):
            h = F.relu_(norm(conv(h)).add_(h))
        loss = F.adaptive_avg_pool2d(h, 1).square().sum()
    return trained(loss, convs, norms)


@program
def autocast(under: Under) -> list[Tensor]:
    model = nn.Sequential(
        *[m for _ in range(6) for m in (nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU())]
    )
    x = torch.randn(8, 16)
    with under(), torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(x)
    loss = out.float().square().sum()
    loss.backward()
    return results(model, extra=(loss, out))


@program
def backward_under_autocast(under: Under) -> list[Tensor]:
    model = nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(9, 9), nn.Tanh())])
    x = torch.randn(8, 9)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with under():
            loss = model(x).float().square().sum()
        return trained(loss, model)


@program
def lstm(under: Under) -> list[Tensor]:
    model = nn.LSTM(6, 7, num_layers=2, dropout=0.3, bidirectional=True)
    x = torch.randn(11, 3, 6, requires_grad=True)
    with under():
        out, (h, c) = model(x)
        loss = out.square().sum() + h.sum() + c.sin().sum()
    loss.backward()
    return results(model, extra=(loss, x.grad))  # type: ignore[arg-type]


@program
def lstm_cells(under: Under) -> list[Tensor]:
    cell = nn.LSTMCell(6, 7)
    x = torch.randn(25, 3, 6)
    with under():
        h = c = torch.zeros(3, 7)
        outs = []
        for t in range(25):
            h, c = cell(x[t], (h, c))
            outs.append(h)
        loss = torch.stack(outs).square().sum()
    return trained(loss, cell)


@of(12, 36)
def scaled_dot_product(w: Tensor) -> Tensor:
    h = torch.randn(2, 5, 12)
    for k in range(4):
        q, key, v = (h @ w).unflatten(-1, (3, 2, 6)).permute(2, 0, 3, 1, 4)
        p = 0.2 if k % 2 else 0.0
        h = F.scaled_dot_product_attention(q, key, v, is_causal=True, dropout_p=p)
        h = h.transpose(1, 2).flatten(2)
    return h.square().sum()


@program
def indexing_and_scatter(under: Under) -> list[Tensor]:
    table = nn.Embedding(10, 6, padding_idx=0)
    w = parameter(6, 6)
    index = torch.randint(0, 10, (4, 5))
    with under():
        h = table(index)
        for _ in range(4):
            h = torch.tanh(h @ w)
            top, where = h.topk(2, dim=-1)
            h = h.scatter_add(-1, where, top).masked_fill(h > 1.0, 0.5)
            h = torch.where(h > 0, h, 0.1 * h).index_select(
                1, torch.tensor([4, 3, 2, 1, 0])
            )
            h = h.clone()
            h[:, [0, 1]] += 1.0
        loss = F.cross_entropy(h.flatten(0, 1)[:, :6], index.flatten() % 6)
    loss.backward()
    return [*results(table, extra=(loss,)), w.grad]  # type: ignore[list-item]


@program
def convolutions(under: Under) -> list[Tensor]:
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.GroupNorm(2, 6), nn.ELU(),
        nn.MaxPool2d(2), nn.Conv2d(6, 8, 3, stride=2), nn.InstanceNorm2d(8),
        nn.LeakyReLU(0.1), nn.ConvTranspose2d(8, 4, 3), nn.Dropout2d(0.3),
        nn.Upsample(scale_factor=2), nn.Hardswish(), nn.AvgPool2d(2), nn.Flatten(),
    )  # fmt: skip
    x = torch.randn(2, 3, 16, 16).to(memory_format=torch.channels_last)
    return squared(under, model, x)


@program
def frozen_and_no_grad_parts(under: Under) -> list[Tensor]:
    frozen = nn.Linear(8, 8).requires_grad_(False)
    head = nn.Linear(8, 8)
    with under():
        h = torch.randn(3, 8)
        with torch.no_grad():
            target = torch.tanh(head(h))
        with torch.inference_mode():
            constant = torch.sin(frozen(h)).clone()
        h = torch.relu(head(torch.relu(frozen(h)))) * constant.clone()
        loss = (h - target).square().sum()
    return trained(loss, frozen, head)


@program
def weight_shared_and_reparametrised(under: Under) -> list[Tensor]:
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))
    with under():
        h = torch.randn(3, 8)
        for _ in range(8):
            h = torch.tanh(layer(h)) + F.linear(h, layer.weight.t())
            h = F.normalize(h, dim=-1)
        loss = h.square().sum() + layer.weight.cos().sum()
    return trained(loss, layer)


@program
def gradient_accumulation(under: Under) -> list[Tensor]:
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Dropout(0.3), nn.Linear(6, 6))
    optimiser = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in range(3):
        for _ in range(2):
            with under():
                loss = model(torch.randn(4, 6)).square().mean()
            loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=False)
    return results(model) + [p.detach().clone() for p in model.parameters()]

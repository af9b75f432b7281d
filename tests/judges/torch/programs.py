"""Programs that are hard to run twice.

Each takes `under`, a function that returns a fresh context manager for the part that
may be recomputed, and returns every tensor that must not differ by a bit: gradients,
buffers, outputs. Each seeds itself; the caller compares the final random states.
"""

import functools
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Under = Callable[[], AbstractContextManager[Any]]
Program = Callable[[Under], list[Tensor]]
PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    """A program that seeds itself."""

    @functools.wraps(function)
    def alone(under: Under) -> list[Tensor]:
        torch.manual_seed(0)
        random.seed(0)
        return function(under)

    PROGRAMS[function.__name__] = alone
    return alone


def results(*models: nn.Module, extra: tuple[Tensor, ...] = ()) -> list[Tensor]:
    found: list[Tensor] = []
    for model in models:
        found += [p.grad for p in model.parameters() if p.grad is not None]
        found += list(model.buffers())
    return [t.detach().clone() for t in (*found, *extra)]


def parameter(*shape: int, scale: float = 0.3) -> Tensor:
    return (scale * torch.randn(*shape)).requires_grad_()


def with_grads(loss: Tensor, *leaves: Tensor) -> list[Tensor]:
    loss.backward()
    return [loss.detach(), *(leaf.grad for leaf in leaves)]  # type: ignore[list-item]


def trained(loss: Tensor, *models: nn.Module) -> list[Tensor]:
    loss.backward()
    return results(*models, extra=(loss,))


def squared(under: Under, model: nn.Module, x: Tensor) -> list[Tensor]:
    with under():
        loss = model(x).square().sum()
    return trained(loss, model)


@program
def deep_mlp(under: Under) -> list[Tensor]:
    model = nn.Sequential(
        *[m for _ in range(16) for m in (nn.Linear(24, 24), nn.Tanh())]
    )
    return squared(under, model, torch.randn(16, 24))


@program
def dropout_everywhere(under: Under) -> list[Tensor]:
    model = nn.Sequential(
        *[m for _ in range(10) for m in (nn.Linear(24, 24), nn.ReLU(), nn.Dropout(0.3))]
    )
    return squared(under, model, torch.randn(16, 24))


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
def slice_writes(under: Under) -> list[Tensor]:
    w, x = parameter(6, 6), torch.randn(5, 6)
    with under():
        rows = torch.zeros(12, 5, 6)
        h = x
        for k in range(12):
            h = torch.sigmoid(h @ w)
            rows[k] = h
        rows[3:5] *= 2
        loss = rows.square().sum()
    return with_grads(loss, w)


@program
def in_place_on_a_loop_state(under: Under) -> list[Tensor]:
    w = parameter(8, 8)
    with under():
        state = torch.ones(4, 8) * w[0]
        total = torch.zeros(())
        for _ in range(15):
            update = torch.tanh(state @ w)
            state = state.clone()
            state.add_(update, alpha=0.1)
            state[:, ::2] *= 0.9
            total = total + state.sin().sum()
    return with_grads(total, w)


@program
def batch_norm(under: Under) -> list[Tensor]:
    model = nn.Sequential(
        *[
            m
            for _ in range(5)
            for m in (nn.Linear(12, 12), nn.BatchNorm1d(12), nn.ReLU())
        ]
    )
    x = torch.randn(9, 12)
    with under():
        loss = model(x).square().sum() + model(0.5 * x).sum()
    return trained(loss, model)


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
def spectral_norm(under: Under) -> list[Tensor]:
    model = nn.Sequential(
        *[
            m
            for _ in range(4)
            for m in (
                nn.utils.parametrizations.spectral_norm(nn.Linear(10, 10)),
                nn.Tanh(),
            )
        ]
    )
    return squared(under, model, torch.randn(6, 10))


@program
def views_and_strides(under: Under) -> list[Tensor]:
    w = parameter(8, 12)
    with under():
        h = w
        for _ in range(6):
            a, b, c = h.chunk(3, dim=1)
            h = torch.cat([a.sin() * b, b.T.reshape(8, 4).exp() * c, c - a], dim=1)
            h = h.as_strided((8, 12), (1, 8)).contiguous() * 0.3
            h = h.unflatten(1, (3, 4)).permute(1, 0, 2).flip(0).reshape(8, 12)
        loss = h.diagonal().square().sum() + h.unfold(1, 4, 2).cos().sum()
    return with_grads(loss, w)


@program
def views_of_one_storage_written_in_turn(under: Under) -> list[Tensor]:
    w = parameter(10)
    with under():
        base = torch.zeros(40)
        left, right = base[:20], base[20:]
        for k in range(4):
            left[5 * k : 5 * k + 5] = torch.sin(w[:5] * (k + 1))
            right[5 * k : 5 * k + 5] = torch.cos(w[5:] * (k + 1))
            base = base.clone()
            left, right = base[:20], base[20:]
        loss = (left * right).square().sum()
    return with_grads(loss, w)


@program
def metadata_in_place(under: Under) -> list[Tensor]:
    w = parameter(6, 4)
    with under():
        h = w.sin()
        h.t_()
        h = (h.exp() + 1).unsqueeze_(0).transpose_(0, 2)
        h = (h * h).squeeze_()
        loss = (h @ w.T.tanh()).square().sum()
    return with_grads(loss, w)


@program
def data_dependent_branches(under: Under) -> list[Tensor]:
    w = parameter(8, 8)
    x = torch.randn(4, 8)
    with under():
        h, turns = x, 0
        while h.abs().sum().item() < 60 and turns < 40:
            h = torch.tanh(h @ w) + x
            h = h * 1.2 if h.mean() > 0 else h.sin() + h
            turns += 1
        loss = h[h > 0].square().sum() + h.flatten()[h.flatten().nonzero()[:3]].sum()
    return with_grads(loss, w)


@program
def python_random_and_counter(under: Under) -> list[Tensor]:
    w = parameter(8, 8)
    x, count = torch.randn(4, 8), 0
    with under():
        h = x
        for _ in range(12):
            count += 1
            h = torch.tanh(h @ w) if random.random() < 0.5 else torch.sin(h @ w)
            h = h * (1 + 0.01 * count)
        loss = h.square().sum()
    return with_grads(loss, w)


@program
def explicit_generator(under: Under) -> list[Tensor]:
    generator = torch.Generator().manual_seed(7)
    w = parameter(8, 8)
    with under():
        h = torch.randn(4, 8, generator=generator)
        for _ in range(8):
            noise = torch.empty(4, 8).normal_(generator=generator)
            h = torch.tanh(h @ w) * noise
        loss = h.square().sum()
    return [*with_grads(loss, w), generator.get_state()]


@program
def many_distributions(under: Under) -> list[Tensor]:
    w = parameter(6, 6)
    with under():
        h = torch.rand(5, 6) @ w
        for _ in range(4):
            h = F.rrelu(h @ w, training=True)
            h = F.gumbel_softmax(h, tau=0.7)
            h = h * torch.bernoulli(torch.full((5, 6), 0.7)) + torch.randn_like(h)
            h = F.alpha_dropout(h, 0.2, training=True)
            h = h[torch.randperm(5)]
            h = h + torch.distributions.Normal(h, 1.0).rsample()
            picked = torch.multinomial(F.softmax(h, -1), 2)
            h = h + h.gather(1, picked).mean()
        loss = h.square().sum()
    return with_grads(loss, w)


class Cubed(torch.autograd.Function):
    """Saves an input and an output, and keeps a number on the context."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        y = (x * scale) ** 3
        ctx.save_for_backward(x, y)
        ctx.scale = scale
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        x, _ = ctx.saved_tensors
        return grad * 3 * ctx.scale**3 * x * x, None


@program
def custom_functions(under: Under) -> list[Tensor]:
    w = parameter(8, 8)
    with under():
        h = torch.randn(4, 8)
        for k in range(8):
            h = torch.tanh(Cubed.apply(h @ w, 0.5 + 0.1 * k))  # type: ignore[operator]
        loss = h.square().sum()
    return with_grads(loss, w)


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


@program
def packed_gru(under: Under) -> list[Tensor]:
    model = nn.GRU(4, 5, batch_first=True)
    x = torch.randn(3, 8, 4)
    packed = nn.utils.rnn.pack_padded_sequence(x, [8, 5, 2], batch_first=True)
    with under():
        out, h = model(packed)
        loss = out.data.square().sum() + h.sum()
    return trained(loss, model)


@program
def attention(under: Under) -> list[Tensor]:
    layers = nn.ModuleList(
        nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1, batch_first=True)
        for _ in range(3)
    )
    x = torch.randn(2, 6, 16)
    mask = nn.Transformer.generate_square_subsequent_mask(6)
    with under():
        h = x
        for layer in layers:
            h = layer(h, src_mask=mask)
        loss = h.square().sum()
    return trained(loss, layers)


@program
def scaled_dot_product(under: Under) -> list[Tensor]:
    w = parameter(12, 36)
    with under():
        h = torch.randn(2, 5, 12)
        for k in range(4):
            q, key, v = (h @ w).unflatten(-1, (3, 2, 6)).permute(2, 0, 3, 1, 4)
            p = 0.2 if k % 2 else 0.0
            h = F.scaled_dot_product_attention(q, key, v, is_causal=True, dropout_p=p)
            h = h.transpose(1, 2).flatten(2)
        loss = h.square().sum()
    return with_grads(loss, w)


@program
def inner_gradient(under: Under) -> list[Tensor]:
    w = parameter(8, 8)
    x = torch.randn(4, 8, requires_grad=True)
    with under():
        h = x
        for _ in range(5):
            h = torch.tanh(h @ w)
        (slope,) = torch.autograd.grad(h.square().sum(), x, create_graph=True)
        loss = (slope.square().sum() - 1).square() + h.sum()
    return with_grads(loss, w)


@program
def inner_gradient_first_order(under: Under) -> list[Tensor]:
    w = parameter(8, 8)
    x = torch.randn(4, 8)
    with under():
        fast = w
        for _ in range(3):
            inner = torch.tanh(x @ fast).square().sum()
            (grad,) = torch.autograd.grad(inner, fast)
            fast = fast - 0.1 * grad
        loss = torch.sin(x @ fast).sum()
    return with_grads(loss, w)


@program
def double_backward(under: Under) -> list[Tensor]:
    w = parameter(6, 6)
    x = torch.randn(3, 6)
    with under():
        h = x
        for _ in range(6):
            h = torch.tanh(h @ w).square() + h
        loss = h.sin().sum()
    (first,) = torch.autograd.grad(loss, w, create_graph=True)
    first.square().sum().backward()
    return [loss.detach(), first.detach(), w.grad]  # type: ignore[list-item]


@program
def retained_graph(under: Under) -> list[Tensor]:
    w = parameter(6, 6)
    with under():
        h = torch.randn(3, 6)
        for _ in range(9):
            h = torch.tanh(h @ w)
        loss = h.square().sum()
    loss.backward(retain_graph=True)
    first = w.grad.clone()  # type: ignore[union-attr]
    loss.backward(retain_graph=True)
    loss.backward()
    return [first, w.grad]  # type: ignore[list-item]


@program
def two_live_graphs(under: Under) -> list[Tensor]:
    w = parameter(6, 6)
    losses = []
    for k in range(2):
        with under():
            h = torch.randn(3, 6) + k
            for _ in range(7):
                h = torch.tanh(h @ w)
            losses.append(h.square().sum())
    losses[0].backward()
    losses[1].backward()
    return [w.grad]  # type: ignore[list-item]


@program
def graph_over_two_runs(under: Under) -> list[Tensor]:
    w = parameter(6, 6)
    with under():
        h = torch.randn(3, 6)
        for _ in range(7):
            h = torch.tanh(h @ w)
    between = h * 2
    with under():
        for _ in range(7):
            between = torch.sin(between @ w)
        loss = between.square().sum()
    return with_grads(loss, w)


@program
def partial_backward(under: Under) -> list[Tensor]:
    v, w = parameter(6, 6), parameter(6, 6)
    with under():
        h = torch.randn(3, 6)
        for _ in range(5):
            h = torch.tanh(h @ v)
        middle = h
        for _ in range(5):
            h = torch.tanh(h @ w)
        left, right = middle.sum(), h.square().sum()
    (a,) = torch.autograd.grad(right, middle, retain_graph=True)
    (b,) = torch.autograd.grad(left, v, retain_graph=True)
    (c, d) = torch.autograd.grad(right, (v, w))
    return [a, b, c, d]


@program
def hooks_on_tensors(under: Under) -> list[Tensor]:
    w = parameter(6, 6)
    seen: list[Tensor] = []
    with under():
        h = torch.randn(3, 6)
        for k in range(6):
            h = torch.tanh(h @ w)
            if k % 2:
                h.register_hook(lambda g: seen.append(g.clone()) or 0.5 * g)
        h.retain_grad()
        loss = h.square().sum()
    loss.backward()
    return [w.grad, h.grad, *seen]  # type: ignore[list-item]


@program
def backward_inside(under: Under) -> list[Tensor]:
    w = parameter(6, 6)
    with under():
        for k in range(3):
            h = torch.randn(3, 6) + k
            for _ in range(5):
                h = torch.tanh(h @ w)
            F.dropout(h, 0.4).square().sum().backward()
    return [w.grad]  # type: ignore[list-item]


@program
def buffer_mutated_then_used(under: Under) -> list[Tensor]:
    w = parameter(6, 6)
    count = torch.zeros(())
    state = torch.ones(3, 6)
    with under():
        h = torch.randn(3, 6)
        for _ in range(8):
            count += 1
            state.mul_(0.9).add_(h.detach(), alpha=0.1)
            h = torch.tanh(h @ w) * count.clone() + state.clone() * w[0]
        loss = h.square().sum()
    return [*with_grads(loss, w), count.clone(), state.clone()]


@program
def in_place_on_the_input(under: Under) -> list[Tensor]:
    w = parameter(6, 6)
    x = torch.randn(3, 6)
    with under():
        h = torch.tanh(x @ w)
        x.mul_(2.0)
        h = h + torch.tanh((x + 1) @ w.sin())
        x.zero_()
        loss = h.square().sum()
    try:
        return [*with_grads(loss, w), x.clone()]
    except RuntimeError:  # plain PyTorch refuses: saved by the first product
        return [x.clone()]


@program
def data_written_through(under: Under) -> list[Tensor]:
    w = parameter(6, 6)
    with under():
        h = torch.randn(3, 6) @ w
        h.data.mul_(0.5)
        for _ in range(4):
            h = torch.tanh(h @ w)
        loss = h.square().sum()
    return with_grads(loss, w)


@program
def complex_numbers(under: Under) -> list[Tensor]:
    w = parameter(8, 8)
    with under():
        z = torch.fft.fft(torch.randn(3, 8) @ w)
        for _ in range(3):
            z = torch.fft.ifft(z * z.conj().resolve_conj() + z.conj() * 0.1)
            z = z @ torch.complex(w, -w).mH + z.conj().imag.neg()
        loss = torch.view_as_real(z).square().sum() + z.abs().sum()
    return with_grads(loss, w)


@program
def linear_algebra(under: Under) -> list[Tensor]:
    w = parameter(5, 5)
    with under():
        a = w @ w.T + 2 * torch.eye(5)
        chol = torch.linalg.cholesky(a)
        inverse = torch.linalg.solve(a, torch.eye(5))
        values, vectors = torch.linalg.eigh(a)
        u, s, _ = torch.linalg.svd(a + 0.1 * inverse)
        loss = chol.sum() + inverse.sin().sum() + values.log().sum()
        loss = loss + (vectors * s).abs().sum() + torch.linalg.det(a) + u.abs().sum()
    return with_grads(loss, w)


@program
def resized_buffers(under: Under) -> list[Tensor]:
    w = parameter(6)
    with under():
        out = torch.empty(0)
        h = w
        for k in range(4):
            torch.sin(h.detach() * (k + 1), out=out)
            scratch = torch.zeros(2)
            scratch.resize_(6).zero_().add_(out)
            h = h * scratch + w.cos()
        loss = h.square().sum()
    return with_grads(loss, w)


@program
def foreach_operators(under: Under) -> list[Tensor]:
    ws = [parameter(4, 4) for _ in range(3)]
    with under():
        hs = [torch.randn(2, 4) for _ in ws]
        for _ in range(5):
            hs = [torch.tanh(h @ w) for h, w in zip(hs, ws, strict=True)]
            hs = list(torch._foreach_mul(hs, 1.1))
            scratch = [h.detach().clone() for h in hs]
            torch._foreach_add_(scratch, 1.0)
            hs = list(torch._foreach_add(hs, scratch))
        loss = torch.stack([h.square().sum() for h in hs]).sum()
    return with_grads(loss, *ws)


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
def unet_skips(under: Under) -> list[Tensor]:
    down = nn.ModuleList(nn.Linear(10, 10) for _ in range(6))
    up = nn.ModuleList(nn.Linear(20, 10) for _ in range(6))
    x = torch.randn(4, 10)
    with under():
        h, skips = x, []
        for layer in down:
            h = torch.tanh(layer(h))
            skips.append(h)
        for layer in up:
            h = torch.tanh(layer(torch.cat([h, skips.pop()], dim=1)))
        loss = h.square().sum()
    return trained(loss, down, up)


@program
def additive_chain_that_saves_nothing(under: Under) -> list[Tensor]:
    w = parameter(6, 6)
    with under():
        total = torch.zeros(3, 6)
        for k in range(30):
            total = total + 0.1 * k * w[:3]
        loss = total.sin().sum()
        for k in range(10):
            total = total + torch.sin(w[3:] * k)
        loss = loss + total.cos().sum()
    return with_grads(loss, w)


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

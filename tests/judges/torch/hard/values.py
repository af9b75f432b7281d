"""Values: views, writes, random numbers, and branches that they decide."""

import copy
import random

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.judges.torch.hard.table import (
    Under,
    of,
    parameter,
    program,
    with_grads,
)


@of(6, 6)
def slice_writes(w: Tensor) -> Tensor:
    x = torch.randn(5, 6)
    rows = torch.zeros(12, 5, 6)
    h = x
    for k in range(12):
        h = torch.sigmoid(h @ w)
        rows[k] = h
    rows[3:5] *= 2
    return rows.square().sum()


@of(8, 8)
def filled_in_slices(w: Tensor) -> Tensor:
    """Buffers without values, filled part by part, as solvers of ODEs do."""
    h = torch.ones(4, 8) @ w
    for _ in range(3):
        rows, halves = torch.empty(4, 8), torch.empty_like(h)
        for j in range(4):
            rows[j] = torch.sin(h[j])
        h = torch.tanh(rows) @ w
        halves[:2], halves[2:] = h[:2] * 2, h[2:].sin()
        h = halves * h
    return h.square().sum()


@of(8, 8)
def in_place_on_a_loop_state(w: Tensor) -> Tensor:
    state = torch.ones(4, 8) * w[0]
    total = torch.zeros(())
    for _ in range(15):
        update = torch.tanh(state @ w)
        state = state.clone()
        state.add_(update, alpha=0.1)
        state[:, ::2] *= 0.9
        total = total + state.sin().sum()
    return total


@of(8, 8)
def reshaped_in_place(w: Tensor) -> Tensor:
    """A new shape is counted as a write, and so is a new window on a storage."""
    h = torch.ones(8) @ w
    for _ in range(10):
        h = torch.tanh(h @ w)
        seen = h.detach() * 1
        seen.unsqueeze_(0).t_().squeeze_(1)
        copied, window = copy.deepcopy(seen), torch.empty(0).set_(seen)
        h = h * 2 + copied.sin() + window + seen.cos()
    return h.square().sum()


@of(8, 12)
def views_and_strides(w: Tensor) -> Tensor:
    h = w
    for _ in range(6):
        a, b, c = h.chunk(3, dim=1)
        h = torch.cat([a.sin() * b, b.T.reshape(8, 4).exp() * c, c - a], dim=1)
        h = h.as_strided((8, 12), (1, 8)).contiguous() * 0.3
        h = h.unflatten(1, (3, 4)).permute(1, 0, 2).flip(0).reshape(8, 12)
    return h.diagonal().square().sum() + h.unfold(1, 4, 2).cos().sum()


@of(10)
def views_of_one_storage_written_in_turn(w: Tensor) -> Tensor:
    base = torch.zeros(40)
    left, right = base[:20], base[20:]
    for k in range(4):
        left[5 * k : 5 * k + 5] = torch.sin(w[:5] * (k + 1))
        right[5 * k : 5 * k + 5] = torch.cos(w[5:] * (k + 1))
        base = base.clone()
        left, right = base[:20], base[20:]
    return (left * right).square().sum()


@of(6, 4)
def metadata_in_place(w: Tensor) -> Tensor:
    h = w.sin()
    h.t_()
    h = (h.exp() + 1).unsqueeze_(0).transpose_(0, 2)
    h = (h * h).squeeze_()
    return (h @ w.T.tanh()).square().sum()


@of(8, 8)
def data_dependent_branches(w: Tensor) -> Tensor:
    x = torch.randn(4, 8)
    h, turns = x, 0
    while h.abs().sum().item() < 60 and turns < 40:
        h = torch.tanh(h @ w) + x
        h = h * 1.2 if h.mean() > 0 else h.sin() + h
        turns += 1
    return h[h > 0].square().sum() + h.flatten()[h.flatten().nonzero()[:3]].sum()


@of(8, 8)
def python_random_and_counter(w: Tensor) -> Tensor:
    x, count = torch.randn(4, 8), 0
    h = x
    for _ in range(12):
        count += 1
        h = torch.tanh(h @ w) if random.random() < 0.5 else torch.sin(h @ w)
        h = h * (1 + 0.01 * count)
    return h.square().sum()


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


@of(6, 6)
def many_distributions(w: Tensor) -> Tensor:
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
    return h.square().sum()


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


@of(6, 6)
def data_written_through(w: Tensor) -> Tensor:
    h = torch.randn(3, 6) @ w
    h.data.mul_(0.5)
    for _ in range(4):
        h = torch.tanh(h @ w)
    return h.square().sum()


@of(8, 8)
def complex_numbers(w: Tensor) -> Tensor:
    z = torch.fft.fft(torch.randn(3, 8) @ w)
    for _ in range(3):
        z = torch.fft.ifft(z * z.conj().resolve_conj() + z.conj() * 0.1)
        z = z @ torch.complex(w, -w).mH + z.conj().imag.neg()
    return torch.view_as_real(z).square().sum() + z.abs().sum()


@of(5, 5)
def linear_algebra(w: Tensor) -> Tensor:
    a = w @ w.T + 2 * torch.eye(5)
    chol = torch.linalg.cholesky(a)
    inverse = torch.linalg.solve(a, torch.eye(5))
    values, vectors = torch.linalg.eigh(a)
    u, s, _ = torch.linalg.svd(a + 0.1 * inverse)
    loss = chol.sum() + inverse.sin().sum() + values.log().sum()
    return loss + (vectors * s).abs().sum() + torch.linalg.det(a) + u.abs().sum()


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


@of(6, 6)
def additive_chain_that_saves_nothing(w: Tensor) -> Tensor:
    total = torch.zeros(3, 6)
    for k in range(30):
        total = total + 0.1 * k * w[:3]
    loss = total.sin().sum()
    for k in range(10):
        total = total + torch.sin(w[3:] * k)
    return loss + total.cos().sum()

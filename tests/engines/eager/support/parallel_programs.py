"""Programs that split a model in further ways: experts, sequences, groups of processes.

They stand beside those of `collective_programs`, in the same table.
"""

import math
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from tests.engines.eager.support.collective_programs import (
    exchange,
    layered,
    program,
    programs,
    shift,
    tokens,
    weights,
)

Tensor = torch.Tensor


@program
def experts_by_routing() -> Any:
    """How many tokens go where depends on their values, and differs by process."""
    layers, router, x = weights(3), weights(1)[0], tokens(12)
    world = dist.get_world_size()

    def forward() -> Tensor:
        h = x
        for w in layers:
            gate = (h @ router[:, :world]).softmax(-1)
            expert = gate.argmax(-1)
            order = torch.argsort(expert, stable=True)
            given = torch.bincount(expert, minlength=world)
            out = torch.empty_like(given)
            dist.all_to_all_single(out, given)
            there, here = out.tolist(), given.tolist()
            y = torch.relu(exchange(h[order], there, here) @ w)
            y = exchange(y, here, there)
            h = h + torch.zeros_like(h).index_copy(0, order, y) * gate.gather(
                1, expert[:, None]
            )
        return h.square().sum()

    return [*layers, router], forward


def passed_on(x: Tensor) -> Tensor:
    return shift(x, torch.empty_like(x), 1)


class RingAttention(torch.autograd.Function):
    """Attention to the tokens of all processes, whose keys and values go round."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scale, found = q.shape[-1] ** -0.5, torch.zeros_like(q)
        total = torch.full(q.shape[:-1], -math.inf)
        keys, values = k, v
        for _ in range(dist.get_world_size()):
            scores = q @ keys.mT * scale
            after = torch.logaddexp(total, torch.logsumexp(scores, -1))
            found = found * (total - after).exp()[:, None]
            found = found + (scores - after[:, None]).exp() @ values
            total = after
            keys, values = passed_on(keys), passed_on(values)
        ctx.save_for_backward(q, k, v, found, total)
        return found

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v, found, total = ctx.saved_tensors
        scale, shared = q.shape[-1] ** -0.5, (g * found).sum(-1, keepdim=True)
        dq, dk, dv = map(torch.zeros_like, (q, k, v))
        for _ in range(dist.get_world_size()):
            share = (q @ k.mT * scale - total[:, None]).exp()
            ds = share * (g @ v.mT - shared) * scale
            dq, dk, dv = dq + ds @ k, dk + ds.mT @ q, dv + share.mT @ g
            k, v, dk, dv = map(passed_on, (k, v, dk, dv))
        return dq, dk, dv


@program
def attention_in_a_ring() -> Any:
    layers, x = weights(9), tokens(6)

    def forward() -> Tensor:
        h = x
        for q, k, v in zip(layers[::3], layers[1::3], layers[2::3], strict=True):
            h = h + RingAttention.apply(torch.sin(h @ q), torch.cos(h @ k), h @ v)
        return h.square().mean()

    return layers, forward


class Both(torch.autograd.Function):
    """Two sums over processes in one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        one, other = x.clone(), x.sin()
        with dist._coalescing_manager(async_ops=True) as waiting:
            dist.all_reduce(one)
            dist.all_reduce(other)
        waiting.wait()
        ctx.save_for_backward(x, other)
        return one + other

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        x, other = ctx.saved_tensors
        g = g.clone()
        dist.all_reduce(g)
        return g * (1 + x.cos() + 0.01 * other)


programs["sums_in_one"] = partial(layered, Both.apply)


@program
def groups_without_some_processes() -> Any:
    layers, x = weights(), tokens()
    rank, world = dist.get_rank(), dist.get_world_size()
    first, others = dist.new_group([0]), dist.new_group(list(range(1, world)))

    def forward() -> Tensor:
        h = x
        for k, w in enumerate(layers):
            h = torch.tanh(h @ w)
            if k % 2 or rank:  # the first process skips every other one
                seen = h.detach().clone()
                dist.all_reduce(seen, group=others if rank else first)
                h = h * seen
        return h.square().sum()

    return layers, forward

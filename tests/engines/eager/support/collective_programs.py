"""Programs whose processes talk to each other, in every form that PyTorch has.

A program makes its parameters from the rank and returns them with a forward; the
forward is run plainly and under a recomputation, and gradients are compared bitwise.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as autograd_forms
from torch import nn

Tensor = torch.Tensor
Program = Callable[[], tuple[Sequence[Tensor], Callable[[], Tensor]]]
programs: dict[str, Program] = {}
LAYERS, WIDTH = 5, 8


def program(function: Program) -> Program:
    programs[function.__name__] = function
    return function


def weights(count: int = LAYERS, width: int = WIDTH) -> list[Tensor]:
    torch.manual_seed(7 + dist.get_rank())
    return [torch.randn(width, width).requires_grad_() for _ in range(count)]


def tokens(rows: int = 8, width: int = WIDTH) -> Tensor:
    torch.manual_seed(70 + dist.get_rank())
    return torch.randn(rows, width)


def layered(talk: Callable[[Tensor], Tensor]) -> Any:
    """Layers, after each of which the processes talk."""
    layers, x = weights(), tokens()

    def forward() -> Tensor:
        h = x
        for w in layers:
            h = torch.tanh(talk(torch.sin(h @ w)) * 0.5)
        return h.square().sum()

    return layers, forward


# Collectives, and functions of one's own that have them in both directions.


def own(forward: Callable[[Any], Any], backward: Callable[[Any], Any]) -> Any:
    """A function of one tensor, by what it does and what its backward does."""

    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return forward(x)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return backward(g)

    return Own.apply


def summed(x: Tensor) -> Tensor:
    x = x.contiguous().clone()
    dist.all_reduce(x)
    return x


def gathered(x: Tensor) -> Tensor:
    """Rows of all processes, by the collective that fills one tensor."""
    out = x.new_empty(x.shape[0] * dist.get_world_size(), *x.shape[1:])
    dist.all_gather_into_tensor(out, x.contiguous())
    return out


def listed(x: Tensor) -> Tensor:
    """The same, by the collective that fills a list."""
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x.contiguous())
    return torch.cat(parts)


def scattered(x: Tensor) -> Tensor:
    """A sum over processes of which each one has its rows."""
    out = x.new_empty(x.shape[0] // dist.get_world_size(), *x.shape[1:])
    dist.reduce_scatter_tensor(out, x.contiguous())
    return out


def shift(x: Tensor, out: Tensor, by: int) -> Tensor:
    """What the process before has in a ring, or the one after."""
    rank, world = dist.get_rank(), dist.get_world_size()
    operations = [
        dist.P2POp(dist.isend, x.contiguous(), (rank + by) % world),
        dist.P2POp(dist.irecv, out, (rank - by) % world),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return out


def exchange(x: Tensor, out: list[int], given: list[int]) -> Tensor:
    """Rows for each process, given away and received."""

    def swap(x: Tensor, out: list[int], given: list[int]) -> Tensor:
        received = x.new_empty(sum(out), *x.shape[1:])
        dist.all_to_all_single(received, x.contiguous(), out, given)
        return received

    return own(lambda x: swap(x, out, given), lambda g: swap(g, given, out))(x)


def sum_here(x: Tensor) -> Tensor:
    """Megatron's `g`: a sum over processes, whose derivative is one."""
    return own(summed, lambda g: g)(x)


def spread(x: Tensor) -> Tensor:
    """Megatron's `f`: nothing forwards, a sum over processes backwards."""
    return own(lambda x: x.view_as(x), summed)(x)


def gather(x: Tensor) -> Tensor:
    return own(gathered, scattered)(x)


def scatter(x: Tensor) -> Tensor:
    return own(scattered, gathered)(x)


class Late(torch.autograd.Function):
    """A sum that goes on while other operators run; its own result is saved."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        x = x.clone()
        work = dist.all_reduce(x, async_op=True)
        ctx.save_for_backward(x, other)
        more = torch.cos(other) + other.square()
        work.wait()
        return x, more

    @staticmethod
    def backward(ctx: Any, g: Tensor, more: Tensor) -> tuple[Tensor, Tensor]:
        x, other = ctx.saved_tensors
        return g * torch.tanh(x), more * (2 * other - torch.sin(other))


# What is said after a layer: the programs that are nothing else.


def waited_for_later(h: Tensor) -> Tensor:
    total, more = Late.apply(h, h.cos() * 0.3)
    return total * more


def of_rows(rows: Tensor, h: Tensor) -> Tensor:
    """The mean of what each process has."""
    return rows.reshape(-1, *h.shape).sin().mean(0)


def own_part(g: Tensor) -> Tensor:
    return summed(g).chunk(dist.get_world_size())[dist.get_rank()]


def broadcast_and_reduced(h: Tensor) -> Tensor:
    h = autograd_forms.broadcast(h.sin(), 0)
    return autograd_forms.reduce(h.cos(), 0) * 0.5


def functional_with_autograd(h: Tensor) -> Tensor:
    group, world = dist.group.WORLD, dist.get_world_size()
    rows = functional.all_gather_tensor_autograd(h, 0, group).sin()
    part = functional.reduce_scatter_tensor_autograd(rows.cos(), "sum", 0, group)
    split = [h.shape[0] // world] * world
    return functional.all_to_all_single_autograd(part.sin(), split, split, group)


def coalesced(h: Tensor) -> Tensor:
    group, seen = dist.group.WORLD, h.detach()
    one, other = functional.all_reduce_coalesced([seen, seen.cos()], "sum", group)
    wide = functional.all_gather_into_tensor_coalesced([seen], group)[0]
    return h * one + other * wide[: h.shape[0]]


def of_a_part(h: Tensor) -> Tensor:
    with torch.no_grad():
        seen = h.clone()
        part = seen[:2].square()
        dist.all_reduce(part)
        dist.all_reduce(seen[2:4])
    return h * seen + part.mean()


def objects(h: Tensor) -> Tensor:
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, float(h.detach().sum()))
    return h * max(found)


TALKS: dict[str, Callable[[Tensor], Tensor]] = {
    "in_place_sum": sum_here,
    "sum_that_is_waited_for_later": waited_for_later,
    "gather_into_a_tensor": lambda h: of_rows(gather(h), h),
    "gather_into_a_list": lambda h: of_rows(own(listed, own_part)(h), h),
    "scattered_sum": lambda h: scatter(h.sin()).sin().repeat(dist.get_world_size(), 1),
    "autograd_sum": autograd_forms.all_reduce,
    "autograd_gather": lambda h: of_rows(torch.cat(autograd_forms.all_gather(h)), h),
    "autograd_exchange": lambda h: autograd_forms.all_to_all_single(
        torch.empty_like(h), h.sin()
    ),
    "autograd_broadcast_and_reduce": broadcast_and_reduced,
    "functional_sum": lambda h: (
        h * functional.all_reduce(h.detach(), "avg", dist.group.WORLD)
    ),
    "functional_with_autograd": functional_with_autograd,
    "functional_in_place_and_coalesced": coalesced,
    "sum_of_a_part_of_a_tensor": of_a_part,
    "objects_between": objects,
}
programs |= {name: partial(layered, talk) for name, talk in TALKS.items()}


@program
def column_and_row_parallel_by_hand() -> Any:
    up, down, x = weights(3), weights(3), tokens()

    def forward() -> Tensor:
        h = x
        for a, b in zip(up, down, strict=True):
            h = h + sum_here(torch.relu(spread(h) @ a) @ b)
        return h.square().sum()

    return [*up, *down], forward


@program
def metric_that_is_waited_for_after_the_block() -> Any:
    works: list[Any] = []

    def talk(h: Tensor) -> Tensor:
        seen = h.detach().square().mean().reshape(1)
        works.append((seen, dist.all_reduce(seen, async_op=True)))
        return h

    layers, forward = layered(talk)
    forward.works = works
    return layers, forward


@program
def sequence_parallel_by_hand() -> Any:
    up, down, x = weights(3), weights(3), tokens(4)
    norm = nn.LayerNorm(WIDTH)

    def forward() -> Tensor:
        h = x
        for a, b in zip(up, down, strict=True):
            h = h + scatter(torch.relu(gather(norm(h)) @ a) @ b)
        return h.square().sum()

    return [*up, *down, *norm.parameters()], forward


@program
def statistics_in_a_buffer() -> Any:
    buffer = torch.zeros(WIDTH)

    def talk(h: Tensor) -> Tensor:
        with torch.no_grad():  # the same buffer at each layer, from outside
            buffer.copy_(h.mean(0))
            dist.all_reduce(buffer)
            scale = buffer.cos()
        return h * scale

    return layered(talk)


@program
def ring_with_one_buffer() -> Any:
    buffer = torch.empty(8, WIDTH)
    there = lambda x: shift(x, buffer, 1).clone()  # noqa: E731
    back = lambda g: shift(g, torch.empty_like(g), -1)  # noqa: E731
    return layered(lambda h: own(there, back)(h).sin())


@program
def pipeline() -> Any:
    """Each process has some layers; what crosses is sent, and so is its gradient."""
    layers, x = weights(), tokens()
    rank, world = dist.get_rank(), dist.get_world_size()

    def forward() -> Tensor:
        h = x.clone().requires_grad_()
        if rank:
            dist.recv(h.detach(), rank - 1)
        first = h
        for w in layers:
            h = torch.tanh(h @ w)
        if rank + 1 < world:
            dist.send(h.detach(), rank + 1)
        forward.first = first  # type: ignore[attr-defined]
        return h.square().sum()

    return layers, forward


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 16), nn.Linear(16, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


@program
def sequence_parallel_with_norms() -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    first, last = nn.Embedding(10, WIDTH), nn.Linear(WIDTH, 5)
    model = nn.Sequential(first, *[Block() for _ in range(3)], last)
    along = {"input_layouts": Shard(1)}, {"output_layouts": Shard(1)}
    inside = {
        "norm": SequenceParallel(),
        "up": ColwiseParallel(**along[0], use_local_output=False),
        "down": RowwiseParallel(**along[1], use_local_output=False),
    }
    entry = RowwiseParallel(
        input_layouts=Replicate(), **along[1], use_local_output=False
    )
    end = ColwiseParallel(**along[0], output_layouts=Replicate())
    parallelize_module(model, mesh, {"0": entry, "4": end})
    for block in model[1:4]:
        parallelize_module(block, mesh, inside)
    x, target = torch.arange(12).reshape(3, 4) % 10, torch.arange(12) % 5
    return list(model.parameters()), lambda: nn.functional.cross_entropy(
        model(x).flatten(0, 1), target
    )

"""Programs whose processes talk to each other, in every form that PyTorch has.

A program makes its parameters from the rank and returns them with a forward; the
forward is run plainly and under a recomputation, and gradients are compared bitwise.
"""

from collections.abc import Callable, Sequence
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


class Sum(torch.autograd.Function):
    """Megatron's `g`: a sum over processes, whose derivative is one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g


class Spread(torch.autograd.Function):
    """Megatron's `f`: nothing forwards, a sum over processes backwards."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        g = g.contiguous().clone()
        dist.all_reduce(g)
        return g


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


class Gather(torch.autograd.Function):
    """Rows of all processes, by the collective that fills one tensor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = x.new_empty(x.shape[0] * dist.get_world_size(), *x.shape[1:])
        dist.all_gather_into_tensor(out, x.contiguous())
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        rows = g.shape[0] // dist.get_world_size()
        out = g.new_empty(rows, *g.shape[1:])
        dist.reduce_scatter_tensor(out, g.contiguous())
        return out


class GatherList(torch.autograd.Function):
    """The same, by the collective that fills a list."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        g = g.clone()
        dist.all_reduce(g)
        return g.chunk(dist.get_world_size())[dist.get_rank()]


class Scatter(torch.autograd.Function):
    """A sum over processes of which each one has its rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = x.new_empty(x.shape[0] // dist.get_world_size(), *x.shape[1:])
        dist.reduce_scatter_tensor(out, x.contiguous())
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        out = g.new_empty(g.shape[0] * dist.get_world_size(), *g.shape[1:])
        dist.all_gather_into_tensor(out, g.contiguous())
        return out


class Exchange(torch.autograd.Function):
    """Rows for each process, given away and received."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, out: list[int], given: list[int]) -> Tensor:
        ctx.splits = given, out
        received = x.new_empty(sum(out), *x.shape[1:])
        dist.all_to_all_single(received, x.contiguous(), out, given)
        return received

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        given, out = ctx.splits
        back = g.new_empty(sum(given), *g.shape[1:])
        dist.all_to_all_single(back, g.contiguous(), given, out)
        return back, None, None


@program
def in_place_sum() -> Any:
    return layered(lambda h: Sum.apply(h))


@program
def column_and_row_parallel_by_hand() -> Any:
    up, down, x = weights(3), weights(3), tokens()

    def forward() -> Tensor:
        h = x
        for a, b in zip(up, down, strict=True):
            h = h + Sum.apply(torch.relu(Spread.apply(h) @ a) @ b)
        return h.square().sum()

    return [*up, *down], forward


@program
def sum_that_is_waited_for_later() -> Any:
    layers, x = weights(), tokens()

    def forward() -> Tensor:
        h = x
        for w in layers:
            summed, more = Late.apply(torch.sin(h @ w), h * 0.3)
            h = torch.tanh(summed * more)
        return h.square().sum()

    return layers, forward


@program
def metric_that_is_waited_for_after_the_block() -> Any:
    layers, x = weights(), tokens()

    def forward() -> Tensor:
        h = x
        for w in layers:
            h = torch.tanh(h @ w)
            seen = h.detach().square().mean().reshape(1)
            forward.works.append((seen, dist.all_reduce(seen, async_op=True)))  # type: ignore[attr-defined]
        return h.square().sum()

    forward.works = []  # type: ignore[attr-defined]
    return layers, forward


@program
def gather_into_a_tensor() -> Any:
    return layered(lambda h: Gather.apply(h).reshape(-1, *h.shape).sin().mean(0))


@program
def gather_into_a_list() -> Any:
    return layered(lambda h: GatherList.apply(h).reshape(-1, *h.shape).sin().mean(0))


@program
def scattered_sum() -> Any:
    return layered(
        lambda h: Scatter.apply(h.sin()).sin().repeat(dist.get_world_size(), 1)
    )


@program
def sequence_parallel_by_hand() -> Any:
    up, down, x = weights(3), weights(3), tokens(4)
    norm = nn.LayerNorm(WIDTH)

    def forward() -> Tensor:
        h = x
        for a, b in zip(up, down, strict=True):
            h = h + Scatter.apply(torch.relu(Gather.apply(norm(h)) @ a) @ b)
        return h.square().sum()

    return [*up, *down, *norm.parameters()], forward


@program
def expert_parallel_by_hand() -> Any:
    layers, router, x = weights(3), weights(1)[0], tokens(12)
    world, rank = dist.get_world_size(), dist.get_rank()

    def forward() -> Tensor:
        h = x
        for w in layers:
            # Each process has another number of tokens for each expert.
            order = torch.argsort((h @ router)[:, 0].detach())
            given = [12 - (world - 1) if k == rank else 1 for k in range(world)]
            out = [12 - (world - 1) if k == rank else 1 for k in range(world)]
            there = Exchange.apply(h[order], out, given)
            back = Exchange.apply(torch.relu(there @ w), given, out)
            h = h + torch.zeros_like(h).index_copy(0, order, back)
        return h.square().sum()

    return [*layers, router], forward


@program
def autograd_sum() -> Any:
    return layered(lambda h: autograd_forms.all_reduce(h))


@program
def autograd_gather() -> Any:
    return layered(lambda h: torch.stack(autograd_forms.all_gather(h)).sin().mean(0))


@program
def autograd_exchange() -> Any:
    return layered(
        lambda h: autograd_forms.all_to_all_single(torch.empty_like(h), h.sin())
    )


@program
def autograd_broadcast_and_reduce() -> Any:
    def talk(h: Tensor) -> Tensor:
        h = autograd_forms.broadcast(h.sin(), 0)
        return autograd_forms.reduce(h.cos(), 0) * 0.5

    return layered(talk)


@program
def functional_sum() -> Any:
    layers, x = weights(), tokens()

    def forward() -> Tensor:
        h = x
        for w in layers:
            h = torch.sin(h @ w)
            mean = functional.all_reduce(h.detach(), "avg", dist.group.WORLD)
            h = torch.tanh(h * mean)
        return h.square().sum()

    return layers, forward


@program
def functional_with_autograd() -> Any:
    group = dist.group.WORLD
    world = dist.get_world_size()

    def talk(h: Tensor) -> Tensor:
        rows = functional.all_gather_tensor_autograd(h, 0, group).sin()
        part = functional.reduce_scatter_tensor_autograd(rows.cos(), "sum", 0, group)
        split = [h.shape[0] // world] * world
        return functional.all_to_all_single_autograd(part.sin(), split, split, group)

    return layered(talk)


@program
def functional_in_place_and_coalesced() -> Any:
    layers, x = weights(), tokens()

    def forward() -> Tensor:
        h = x
        for w in layers:
            h = torch.sin(h @ w)
            both = functional.all_reduce_coalesced(
                [h.detach(), h.detach().cos()], "sum", dist.group.WORLD
            )
            wide = functional.all_gather_into_tensor_coalesced(
                [h.detach()], dist.group.WORLD
            )[0]
            h = torch.tanh(h * both[0] + both[1] * wide[: h.shape[0]])
        return h.square().sum()

    return layers, forward


@program
def sum_of_a_part_of_a_tensor() -> Any:
    layers, x = weights(), tokens()

    def forward() -> Tensor:
        h = x
        for w in layers:
            h = torch.sin(h @ w)
            with torch.no_grad():
                seen = h.clone()
                part = seen[:2].square()
                dist.all_reduce(part)
                dist.all_reduce(seen[2:4])
            h = torch.tanh(h * seen + part.mean())
        return h.square().sum()

    return layers, forward


@program
def statistics_in_a_buffer() -> Any:
    layers, x = weights(), tokens()
    buffer = torch.zeros(WIDTH)

    def forward() -> Tensor:
        h = x
        for w in layers:
            h = torch.sin(h @ w)
            with torch.no_grad():  # the same buffer at each layer, from outside
                buffer.copy_(h.mean(0))
                dist.all_reduce(buffer)
                scale = buffer.cos()
            h = torch.tanh(h * scale)
        return h.square().sum()

    return layers, forward


class Shift(torch.autograd.Function):
    """To the next process of a ring, from the one before; `out` is used again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, out: Tensor) -> Tensor:
        shift(x, out, 1)
        return out.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        out = torch.empty_like(g)
        shift(g, out, -1)
        return out, None


def shift(x: Tensor, out: Tensor, by: int) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    operations = [
        dist.P2POp(dist.isend, x.contiguous(), (rank + by) % world),
        dist.P2POp(dist.irecv, out, (rank - by) % world),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()


@program
def ring_with_one_buffer() -> Any:
    buffer = torch.empty(8, WIDTH)
    return layered(lambda h: Shift.apply(h, buffer).sin())


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


@program
def objects_between() -> Any:
    layers, x = weights(), tokens()

    def forward() -> Tensor:
        h = x
        for w in layers:
            h = torch.sin(h @ w)
            found: list[Any] = [None] * dist.get_world_size()
            dist.all_gather_object(found, float(h.detach().sum()))
            h = torch.tanh(h * max(found))
        return h.square().sum()

    return layers, forward


@program
def tensor_parallel() -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = nn.Sequential(
        *[
            nn.Sequential(
                nn.Linear(WIDTH, 16), nn.ReLU(), nn.Linear(16, WIDTH), nn.Tanh()
            )
            for _ in range(3)
        ]
    )
    for block in model:
        parallelize_module(
            block, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()}
        )
    torch.manual_seed(1)
    x = torch.randn(6, WIDTH)
    return list(model.parameters()), lambda: model(x).square().sum()


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

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 16), nn.Linear(16, WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.down(torch.relu(self.up(self.norm(x))))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Embedding(10, WIDTH)
            self.blocks = nn.ModuleList([Block() for _ in range(3)])
            self.last = nn.Linear(WIDTH, 5)

        def forward(self, x: Tensor) -> Tensor:
            h = self.first(x)
            for block in self.blocks:
                h = block(h)
            return self.last(h)

    model = Model()
    parallelize_module(
        model,
        mesh,
        {
            "first": RowwiseParallel(
                input_layouts=Replicate(),
                output_layouts=Shard(1),
                use_local_output=False,
            ),
            "last": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
        },
    )
    for block in model.blocks:
        parallelize_module(
            block,
            mesh,
            {
                "norm": SequenceParallel(),
                "up": ColwiseParallel(input_layouts=Shard(1), use_local_output=False),
                "down": RowwiseParallel(
                    output_layouts=Shard(1), use_local_output=False
                ),
            },
        )
    x = torch.arange(12).reshape(3, 4) % 10
    target = torch.arange(12) % 5
    return list(model.parameters()), lambda: nn.functional.cross_entropy(
        model(x).flatten(0, 1), target
    )

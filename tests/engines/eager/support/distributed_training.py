"""Steps of training that PyTorch's own tools for many processes lead.

Each is given what makes a recomputation, and returns losses and gradients.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
)
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

import retape.torch
from retape import BudgetError

Tensor = torch.Tensor
Making = Callable[[], AbstractContextManager[Any]]
WIDTH = 8


class Block:
    """Makes recomputations in a budget, and looks at them.

    Attributes:
        least: The largest least budget that an error has named.
        peak: The most bytes of all that were made.
        recomputed: Operators run again, of all.
    """

    def __init__(self, memory: int) -> None:
        self.memory, self.least = memory, 0
        self._made: list[Any] = []

    def __call__(self) -> "Block":
        return self

    def __enter__(self) -> None:
        self._made.append(retape.torch.recompute(memory=self.memory))
        self._made[-1].__enter__()

    def __exit__(self, *exception: Any) -> None:
        try:
            self._made[-1].__exit__(*exception)
        except BudgetError as error:
            if self.memory > 1:
                raise
            self.least = max(self.least, error.least or 0)

    @property
    def peak(self) -> int:
        return max(each.report.peak_bytes for each in self._made)

    @property
    def recomputed(self) -> int:
        return sum(each.report.recomputed for each in self._made)


def layers(count: int = 4) -> list[nn.Module]:
    torch.manual_seed(0)
    return [
        nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )
        for _ in range(count)
    ]


def gradients(model: nn.Module) -> list[Tensor]:
    found = (p.grad for p in model.parameters() if p.grad is not None)
    return [getattr(g, "to_local", lambda g=g: g)().clone() for g in found]


class Stage(nn.Module):
    """Layers in a recomputation of their own."""

    def __init__(self, making: Making, inner: nn.Module) -> None:
        super().__init__()
        self.making, self.inner = making, inner

    def forward(self, x: Tensor) -> Tensor:
        with self.making():
            return self.inner(x)


def _in_a_pipeline(making: Making, schedule: Any, around: bool) -> list[Tensor]:
    rank, world = dist.get_rank(), dist.get_world_size()
    inner = nn.Sequential(*layers(4)[4 * rank // world : 4 * (rank + 1) // world])
    part = Stage(nullcontext if around else making, inner)
    stage = PipelineStage(part, rank, world, torch.device("cpu"))
    led = schedule(stage, n_microbatches=4, loss_fn=F.mse_loss)
    x, losses = torch.linspace(-1, 1, 8 * WIDTH).reshape(8, WIDTH), list[Tensor]()
    with making() if around else nullcontext():
        if rank == 0:
            led.step(x)
        else:
            led.step(target=x.flip(0), losses=losses)
    return [*map(Tensor.detach, losses), *gradients(part)]


def _replicas(making: Making, **options: Any) -> list[Tensor]:
    """Three batches, the first without a sum over processes."""
    inner = nn.Sequential(*layers())
    model, found = DistributedDataParallel(inner, **options), list[Tensor]()
    for batch in range(3):
        torch.manual_seed(10 * batch + dist.get_rank())
        x = torch.randn(3 + dist.get_rank(), WIDTH)
        alone = not options and batch == 0
        with model.no_sync() if alone else nullcontext():
            with making():
                loss = model(x).square().mean()
            loss.backward()
        found += [loss.detach(), *gradients(inner)]
    return found


def _losses_in_parallel(making: Making) -> list[Tensor]:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    inner = layers(3)
    for block in inner:
        plan: Any = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        parallelize_module(block, mesh, plan)
    model = nn.Sequential(*inner, nn.Linear(WIDTH, 12))
    words = ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
    parallelize_module(model, mesh, {"3": words})
    torch.manual_seed(1)
    x = torch.randn(6, WIDTH)
    with loss_parallel():
        with making():
            loss: Any = F.cross_entropy(model(x), torch.arange(6))
        loss.backward()
    return [loss.full_tensor().detach(), *gradients(model)]


trainings: dict[str, Callable[[Making], list[Tensor]]] = {
    "all forwards first": partial(_in_a_pipeline, schedule=ScheduleGPipe, around=False),
    "in turns": partial(_in_a_pipeline, schedule=Schedule1F1B, around=False),
    "whole pipeline": partial(_in_a_pipeline, schedule=ScheduleGPipe, around=True),
    "replicas without a sum": _replicas,
    "replicas of a static graph": partial(_replicas, static_graph=True),
    "replicas that look": partial(_replicas, find_unused_parameters=True),
    "losses in parallel": _losses_in_parallel,
}

"""Hints on gradients of PyTorch programs."""

# ruff: noqa: F401 - the statements of the rows use what is imported

import asyncio
import ctypes
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch._higher_order_ops import scan

import retape
import retape.torch
from retape.torch import (
    checkpoint,
    checkpoint_sequential,
    recompute,
)
from tests.hints.rows import rows

FACTOR = torch.linspace(0.5, 1.5, 9).view(3, 3)


def chain(x: Any) -> Any:
    """A loss of a few operators."""
    return (x.sin() * x.exp() + (FACTOR @ x).cos()).square().sum()


class Custom(torch.Tensor):
    """A class of tensors."""


def leaf() -> Any:
    return torch.linspace(0.1, 0.9, 3).requires_grad_()


def grad(f: Callable[[Any], Any], x: Any = None) -> Any:
    """The gradient of a function of three numbers."""
    x = leaf() if x is None else x
    f(x).backward()
    return x.grad


def recomputed(f: Callable[[Any], Any]) -> Any:
    """The gradient of the sum of a function, under a budget."""
    return grad(recompute(memory="1MB")(lambda x: f(x).sum()))


@contextmanager
def one_process() -> Iterator[None]:
    """A group of this process alone."""
    dist = torch.distributed
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def tripled(values: torch.Tensor) -> None:
    """A kernel that is no operator, and says that it has written."""
    for place in range(len(values)):
        address = values.data_ptr() + 4 * place
        ctypes.c_float.from_address(address).value *= 3
    torch.autograd.graph.increment_version(values)


def written(x: Any, kernel: Callable[[torch.Tensor], object]) -> Any:
    """A value is read before and after a kernel has written into it."""
    values = x.detach() * 2
    for _ in range(4):
        x = x.sin() + values
    kernel(values)
    return x * values


def layer(kind: Any, x: Any) -> Any:
    """The loss of a recurrent layer of one step, as a layer or as its cell."""
    return MADE[kind](x.view(1, 3))[0].square().sum()


def made(kind: Any) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return kind(3, 2)


MADE = {kind: made(kind) for kind in (nn.LSTM, nn.LSTMCell)}


ONES = torch.ones(3)
ROWS = rows(
    "grad(chain)",
    r"""
from retape.engines.eager import warn_if_untried
warn_if_untried('9.9.0')
UserWarning says: pass `verify=True`
grad(recompute(memory='1MB', verify=True)(chain))

checkpoint(chain, leaf(), determinism_check='all')
says: pass `debug=True`
grad(lambda x: checkpoint(chain, x, debug=True))

checkpoint_sequential([torch.sin, chain], 2, leaf(), store='cpu')
says: Give one of these, or leave `store`
kept = {'memory': '1MB', 'store': 'cpu'}
grad(lambda x: checkpoint_sequential([torch.sin, chain], input=x, **kept))
gives: grad(lambda x: chain(x.sin()))

retape.torch.Checkpointed(chain)
says: use `retape.torch.checkpoint`
grad(lambda x: retape.torch.checkpoint(chain, x))

with torch.autograd.graph.save_on_cpu():
    grad(recompute(snapshots=2, stage=1)(chain))
says: Write them inside of the recomputation, or have snapshots moved (`store="cpu"`
grad(recompute(snapshots=2, stage=1, store='cpu')(chain))
says: Write them inside of the recomputation
def f(x):
    with torch.autograd.graph.save_on_cpu():
        return chain(x)
grad(recompute(snapshots=2, stage=1)(f))

async def f(x):
    return chain(x)
recompute(memory='1MB')(f)
says: Write `with retape.torch.recompute(...)`
async def f(x):
    with retape.torch.recompute(memory='1MB'):
        return chain(x)
grad(lambda x: asyncio.run(f(x)))

recompute(snapshots=2, stage=1, store='disk')
StoreError says: Pass a `retape.MemoryStore()`
grad(recompute(snapshots=2, stage=1, store=retape.MemoryStore())(chain))

recompute(memory='1MB', policy=['mm'])
says: Pass operators such as `torch.ops.aten.mm.default`
grad(recompute(memory='1MB', policy=[torch.ops.aten.mm.default])(chain))

recomputed(lambda w: torch.cond(
  ONES.sum() > 0, lambda v: (v * w,), lambda v: (v * 2,), (ONES,))[0])
says: write `if`
recomputed(lambda w: ONES * w if ONES.sum() > 0 else ONES * 2)
gives: ONES
says: Pass the tensor as an operand
recomputed(lambda w: torch.cond(
  ONES.sum() > 0, lambda v, w: (v * w,), lambda v, w: (v * 2,), (ONES, w))[0])
gives: ONES

recomputed(lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)))
says: Write `if`
recomputed(lambda x: x.sin() if x.sum() > 0 else x.cos())
gives: grad(lambda x: x.sin().sum())

rows = lambda v: scan(
  lambda c, r: (c.clone(), r * r), torch.zeros(3), v[None])[1]
recomputed(lambda x: torch.cond(
  x.sum() > 0, lambda v: (rows(v),), lambda v: (v[None],), (x,))[0])
says: Write `if`
recomputed(lambda x: (x * x)[None] if x.sum() > 0 else x[None])
gives: grad(lambda x: (x * x).sum())

recomputed(lambda w: torch.cond(
  w.sum() > 0, lambda v: (v * w,), lambda v: (v * 2,), (w,))[0])
says: write `if`
recomputed(lambda w: w * w if w.sum() > 0 else w * 2)
gives: grad(lambda x: (x * x).sum())

w = leaf().detach()
kept = recompute(snapshots=1, stage=1, verify=True)
loss = kept(lambda x: (x * w).sin().exp().sum())(leaf())
w.data.mul_(2)
loss.backward()
says: Write with `torch.no_grad()`
w = leaf().detach()
with torch.no_grad():
    w.mul_(2)
kept = recompute(snapshots=1, stage=1, verify=True)
grad(kept(lambda x: (x * w).sin().exp().sum()))
gives: grad(lambda x: (x * 2 * leaf().detach()).sin().exp().sum())

w = leaf().detach()
loss = recompute(memory='1MB')(lambda x: (x * w).sin().sum())(leaf())
w.mul_(2)
loss.backward()
says: Run the backward before the optimiser's step, or read a `clone()`
w, x = leaf().detach(), leaf()
read = w.clone()
loss = recompute(memory='1MB')(lambda x: (x * read).sin().sum())(x)
w.mul_(2)
loss.backward()
x.grad
gives: grad(lambda x: (x * leaf().detach()).sin().sum())
says: Run the backward before the optimiser's step
w, x = leaf().detach(), leaf()
recompute(memory='1MB')(lambda x: (x * w).sin().sum())(x).backward()
w.mul_(2)
x.grad
gives: grad(lambda x: (x * leaf().detach()).sin().sum())

import torch.distributed
total = torch.ops.symm_mem.two_shot_all_reduce_.default
recomputed(lambda x: total(x * 2, 'sum', 'all'))
says: use the collectives of `torch.distributed`
def f(x):
    total = x.detach().clone()
    torch.distributed.all_reduce(total)
    return x * total
with one_process():
    found = recomputed(f)
found
gives: leaf().detach()

grad(recompute(memory='1MB', mode='loop')(lambda x: layer(nn.LSTM, x)))
says: Give `snapshots`
grad(recompute(snapshots=2, mode='loop')(lambda x: layer(nn.LSTM, x)))
gives: grad(lambda x: layer(nn.LSTM, x))
says: use cells such as `LSTMCell`
grad(recompute(memory='1MB', mode='loop')(lambda x: layer(nn.LSTMCell, x)))
gives: grad(lambda x: layer(nn.LSTM, x))

loss = lambda x: written(x, tripled).sum()
grad(recompute(snapshots=2, stage=1)(loss))
says: Make the kernel an operator (`torch.library.custom_op`
mark = torch.library.custom_op("retape_hints::tripled", mutates_args=("values",))
operator = mark(tripled)
loss = lambda x: written(x, operator).sum()
grad(recompute(snapshots=2, stage=1)(loss))
gives: grad(lambda x: written(x, tripled).sum())

recomputed(lambda x: Custom(x * 2).sin())
says: write `tensor.as_subclass(Custom)`
def f(x):
    tensor = x * 2
    return tensor.as_subclass(Custom).sin()
recomputed(f)
gives: grad(lambda x: (x * 2).sin().sum())
""",
)

"""Hints on gradients of PyTorch programs."""

# ruff: noqa: F401 - the statements of the rows use what is imported

import asyncio
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
from tests.hints.rows import Row

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


@contextmanager
def one_process() -> Iterator[None]:
    """A group of this process alone."""
    dist = torch.distributed
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def layer(kind: Any, x: Any) -> Any:
    """The loss of a recurrent layer of one step, as a layer or as its cell."""
    return MADE[kind](x.view(1, 3))[0].square().sum()


def made(kind: Any) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return kind(3, 2)


MADE = {kind: made(kind) for kind in (nn.LSTM, nn.LSTMCell)}


ONES = torch.ones(3)
BY_CLOSURE = (
    "grad(recompute(memory='1MB')(lambda w: torch.cond("
    "ONES.sum() > 0, lambda v: (v * w,), lambda v: (v * 2,), (ONES,))[0].sum()))"
)
PLAIN = "grad(chain)"
ROWS = [
    Row(
        "pass `verify=True`",
        "from retape.engines.eager import warn_if_untried\nwarn_if_untried('9.9.0')",
        "grad(recompute(memory='1MB', verify=True)(chain))",
        PLAIN,
        error=UserWarning,
    ),
    Row(
        'Say `recompute(memory="1GB")(function)`',
        "recompute(chain)",
        "function = chain\ngrad(recompute(memory='1GB')(function))",
        PLAIN,
    ),
    Row(
        'write `@recompute(memory="1GB")`',
        "recompute(chain)",
        "@recompute(memory='1GB')\ndef f(x):\n    return chain(x)\ngrad(f)",
        PLAIN,
    ),
    Row(
        "Say `recompute(memory='1MB')`",
        "recompute('1MB')",
        "grad(recompute(memory='1MB')(chain))",
        PLAIN,
    ),
    Row(
        'Say `recompute(memory="1GB")` or `recompute(snapshots=8)`',
        "recompute(0.5)",
        "grad(recompute(snapshots=8)(chain))",
        PLAIN,
        written="recompute(snapshots=8)",
    ),
    Row(
        'Say `recompute(memory="1GB")`',
        "recompute('much')",
        "grad(recompute(memory='1GB')(chain))",
        PLAIN,
    ),
    Row(
        "Say `recompute(memory=2000000)`",
        "recompute(2_000_000)",
        "grad(recompute(memory=2000000)(chain))",
        PLAIN,
    ),
    Row(
        "or `recompute(snapshots=20)`",
        "recompute(20)",
        "grad(recompute(snapshots=20)(chain))",
        PLAIN,
    ),
    Row(
        "Say `recompute(plan={})`",
        "recompute(retape.within('1 MB'))",
        "grad(THE_CODE(chain))",
        PLAIN,
    ),
    Row(
        "Pass one such as `8`",
        "recompute(snapshots=2.5)",
        "grad(recompute(snapshots=8)(chain))",
        PLAIN,
    ),
    Row(
        "pass `debug=True`",
        "checkpoint(chain, leaf(), determinism_check='all')",
        "grad(lambda x: checkpoint(chain, x, debug=True))",
        PLAIN,
    ),
    Row(
        "Give one of these, or leave `store`",
        "checkpoint_sequential([torch.sin, chain], 2, leaf(), store='cpu')",
        "grad(lambda x: checkpoint_sequential("
        "[torch.sin, chain], memory='1MB', input=x, store='cpu'))",
        "grad(lambda x: chain(x.sin()))",
    ),
    Row(
        "use `retape.torch.checkpoint`",
        "retape.torch.Checkpointed(chain)",
        "grad(lambda x: retape.torch.checkpoint(chain, x))",
        PLAIN,
    ),
    Row(
        "Write them inside of the recomputation, or have snapshots moved "
        '(`store="cpu"`',
        "with torch.autograd.graph.save_on_cpu():\n"
        "    grad(recompute(snapshots=2, stage=1)(chain))",
        "grad(recompute(snapshots=2, stage=1, store='cpu')(chain))",
        PLAIN,
    ),
    Row(
        "Write them inside of the recomputation",
        "with torch.autograd.graph.save_on_cpu():\n"
        "    grad(recompute(snapshots=2, stage=1)(chain))",
        """
def f(x):
    with torch.autograd.graph.save_on_cpu():
        return chain(x)

grad(recompute(snapshots=2, stage=1)(f))
""",
        PLAIN,
    ),
    Row(
        "Write `with retape.torch.recompute(...)`",
        "async def f(x):\n    return chain(x)\nrecompute(memory='1MB')(f)",
        """
async def f(x):
    with retape.torch.recompute(memory='1MB'):
        return chain(x)

grad(lambda x: asyncio.run(f(x)))
""",
        PLAIN,
    ),
    Row(
        'Pass "cpu" for host memory, or a `retape.DiskStore`',
        "recompute(snapshots=2, stage=1, store='disk')",
        "store = retape.DiskStore(tmp_path / 'run')\n"
        "grad(recompute(snapshots=2, stage=1, store=store)(chain))",
        PLAIN,
    ),
    Row(
        "Pass operators such as `torch.ops.aten.mm.default`",
        "recompute(memory='1MB', policy=['mm'])",
        "grad(recompute(memory='1MB', policy=[torch.ops.aten.mm.default])(chain))",
        PLAIN,
    ),
    Row(
        "write `if`",
        BY_CLOSURE,
        "grad(recompute(memory='1MB')(lambda w: "
        "(ONES * w if ONES.sum() > 0 else ONES * 2).sum()))",
        "ONES",
    ),
    Row(
        "Pass the tensor as an operand",
        BY_CLOSURE,
        "grad(recompute(memory='1MB')(lambda w: torch.cond("
        "ONES.sum() > 0, lambda v, w: (v * w,), lambda v, w: (v * 2,), (ONES, w)"
        ")[0].sum()))",
        "ONES",
    ),
    Row(
        "Write `if`",
        "grad(recompute(memory='1MB')(lambda x: torch.cond("
        "x.sum() > 0, torch.sin, torch.cos, (x,)).sum()))",
        "grad(recompute(memory='1MB')(lambda x: "
        "(x.sin() if x.sum() > 0 else x.cos()).sum()))",
        "grad(lambda x: x.sin().sum())",
    ),
    Row(
        "Write `if`",
        "rows = lambda v: scan(\n"
        "  lambda c, r: (c.clone(), r * r), torch.zeros(3), v[None])[1]\n"
        "grad(recompute(memory='1MB')(lambda x: torch.cond("
        "x.sum() > 0, lambda v: (rows(v),), lambda v: (v[None],), (x,)"
        ")[0].sum()))",
        "grad(recompute(memory='1MB')(lambda x: "
        "((x * x)[None] if x.sum() > 0 else x[None]).sum()))",
        "grad(lambda x: (x * x).sum())",
    ),
    Row(
        "write `if`",
        "grad(recompute(memory='1MB')(lambda w: torch.cond("
        "w.sum() > 0, lambda v: (v * w,), lambda v: (v * 2,), (w,))[0].sum()))",
        "grad(recompute(memory='1MB')(lambda w: "
        "(w * w if w.sum() > 0 else w * 2).sum()))",
        "grad(lambda x: (x * x).sum())",
    ),
    Row(
        "Write with `torch.no_grad()`",
        """
w = leaf().detach()
kept = recompute(snapshots=1, stage=1, verify=True)
loss = kept(lambda x: (x * w).sin().exp().sum())(leaf())
w.data.mul_(2)
loss.backward()
""",
        """
w = leaf().detach()
with torch.no_grad():
    w.mul_(2)
kept = recompute(snapshots=1, stage=1, verify=True)
grad(kept(lambda x: (x * w).sin().exp().sum()))
""",
        "w = 2 * leaf().detach()\ngrad(lambda x: (x * w).sin().exp().sum())",
    ),
    Row(
        "Run the backward before the optimiser's step, or read a `clone()`",
        """
w = leaf().detach()
loss = recompute(memory='1MB')(lambda x: (x * w).sin().sum())(leaf())
w.mul_(2)
loss.backward()
""",
        """
w, x = leaf().detach(), leaf()
read = w.clone()
loss = recompute(memory='1MB')(lambda x: (x * read).sin().sum())(x)
w.mul_(2)
loss.backward()
x.grad
""",
        "w = leaf().detach()\ngrad(lambda x: (x * w).sin().sum())",
    ),
    Row(
        "Run the backward before the optimiser's step",
        """
w = leaf().detach()
loss = recompute(memory='1MB')(lambda x: (x * w).sin().sum())(leaf())
w.mul_(2)
loss.backward()
""",
        """
w, x = leaf().detach(), leaf()
recompute(memory='1MB')(lambda x: (x * w).sin().sum())(x).backward()
w.mul_(2)
x.grad
""",
        "w = leaf().detach()\ngrad(lambda x: (x * w).sin().sum())",
    ),
    Row(
        "use the collectives of `torch.distributed`",
        "import torch.distributed\n"
        "total = torch.ops.symm_mem.two_shot_all_reduce_.default\n"
        "grad(recompute(memory='1MB')(lambda x: total(x * 2, 'sum', 'all').sum()))",
        """
def f(x):
    total = x.detach().clone()
    torch.distributed.all_reduce(total)
    return (x * total).sum()

with one_process():
    found = grad(recompute(memory='1MB')(f))

found
""",
        "leaf().detach()",
    ),
    Row(
        "Give `snapshots`",
        "grad(recompute(memory='1MB', mode='loop')(lambda x: layer(nn.LSTM, x)))",
        "grad(recompute(snapshots=2, mode='loop')(lambda x: layer(nn.LSTM, x)))",
        "grad(lambda x: layer(nn.LSTM, x))",
    ),
    Row(
        "use cells such as `LSTMCell`",
        "grad(recompute(memory='1MB', mode='loop')(lambda x: layer(nn.LSTM, x)))",
        "grad(recompute(memory='1MB', mode='loop')(lambda x: layer(nn.LSTMCell, x)))",
        "grad(lambda x: layer(nn.LSTM, x))",
    ),
    Row(
        "write `tensor.as_subclass(Custom)`",
        "grad(recompute(memory='1MB')(lambda x: Custom(x * 2).sin().sum()))",
        """
def f(x):
    tensor = x * 2
    return tensor.as_subclass(Custom).sin().sum()

grad(recompute(memory='1MB')(f))
""",
        "grad(lambda x: (x * 2).sin().sum())",
    ),
]

"""Hints on PyTorch programs that are compiled, estimated or built as a graph."""

# ruff: noqa: F401 - the statements of the rows use what is imported

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import create_selective_checkpoint_contexts

import retape
import retape.torch
from retape.torch import (
    CompilerBudget,
    Graph,
    checkpoint,
    recompute,
)
from tests.hints.rows import Row
from tests.hints.torch_gradients import FACTOR, PLAIN, chain, grad, leaf


def branches(x: Any) -> Any:
    """A loss that depends on a value."""
    return x.sin().sum() if x.sum() > 0 else x.cos().sum()


def compiled(f: Callable[[Any], Any], **options: Any) -> Any:
    """A function that PyTorch compiles anew, with nothing of another one."""
    torch._dynamo.reset()
    return torch.compile(f, **{"backend": "eager"} | options)


@functools.cache
def operator(name: str, *, fake: bool) -> Any:
    """An operator of a user's own, with a kernel for shapes alone or without."""

    @torch.library.custom_op(f"hints::{name}", mutates_args=())
    def made(x: torch.Tensor) -> torch.Tensor:
        return x * 2.0

    made.register_autograd(lambda ctx, cotangent: cotangent * 2.0)
    if fake:
        torch.library.register_fake(f"hints::{name}")(torch.empty_like)
    return made


def named(policy: Any) -> bool:
    """Whether a run with a region has its gradient under this policy."""
    x = leaf()
    with recompute(memory="1 MB", policy=policy), retape.torch.region("attention"):
        loss = x.sin().square().sum()
    loss.backward()
    return torch.equal(x.grad, grad(lambda x: x.sin().square().sum()))


def with_modules(name: Callable[[nn.Module], Any]) -> bool:
    """Whether a model whose second part is kept has its gradient."""
    model, x = nn.Sequential(nn.Tanh(), nn.Tanh()), leaf()
    name(model)
    with recompute(memory="1 MB", policy=retape.torch.names(save=["1"])):
        loss = model(x).sum()
    loss.backward()
    return torch.equal(x.grad, grad(lambda x: x.tanh().tanh().sum()))


ROWS = [
    Row(
        'Pass one, as in `names({}=["attention"])`',
        "retape.torch.names(save='attention')",
        "named(retape.torch.names(save=['attention']))",
        written="names(save=['attention'])",
    ),
    Row(
        "Say which regions to keep (`save=`",
        "retape.torch.names()",
        "named(retape.torch.names(save=['attention']))",
    ),
    Row(
        "run again (`again=`",
        "retape.torch.names()",
        "named(retape.torch.names(again=['attention']))",
    ),
    Row(
        "give modules their names with `retape.torch.name_modules`",
        "with_modules(lambda model: None)",
        "with_modules(retape.torch.name_modules)",
    ),
    Row(
        "Pass an `nn.Sequential`",
        "retape.torch.checkpoint_sequential(3, 2, leaf())",
        "chain = nn.Sequential(nn.Tanh(), nn.Tanh())\n"
        "grad(lambda x: retape.torch.checkpoint_sequential(chain, 2, x).sum())",
        "grad(lambda x: x.tanh().tanh().sum())",
    ),
    Row(
        "pass `per_graph=True`",
        """
def f(x):
    y = x.sin()
    torch._dynamo.graph_break()
    return y.cos().sum()

compiled(f, backend=CompilerBudget('1MB', backend='aot_eager'))(leaf())
""",
        """
warnings.filterwarnings('ignore', 'The .grad attribute')

def f(x):
    y = x.sin()
    torch._dynamo.graph_break()
    return y.cos().sum()

budget = CompilerBudget('1MB', backend='aot_eager', per_graph=True)
grad(compiled(f, backend=budget))
""",
        "grad(lambda x: x.sin().cos().sum())",
    ),
    Row(
        "call it outside of `torch.compile`",
        "compiled(recompute(memory='1MB')(chain))(leaf())",
        "grad(recompute(memory='1MB')(chain))",
        PLAIN,
        written="recompute(memory='1MB')(chain)",
    ),
    Row(
        "Run it once under `recompute`",
        "retape.torch.estimate(branches, leaf())",
        "run = recompute(memory='1GB')\n"
        "(grad(run(branches)), run.report.peak_bytes > 0)",
        "(grad(branches), True)",
    ),
    Row(
        "Give it a fake kernel (`torch.library.register_fake`",
        "f = operator('real', fake=False)\n"
        "retape.torch.estimate(lambda x: f(x).sum(), leaf())",
        """
f = operator('faked', fake=True)  # by torch.library.register_fake
retape.torch.estimate(lambda x: f(x).sum(), leaf()).enough > 0
""",
    ),
    Row(
        "run the program once under `recompute`",
        "f = operator('real', fake=False)\n"
        "retape.torch.estimate(lambda x: f(x).sum(), leaf())",
        "f = operator('real', fake=False)\n"
        "grad(recompute(memory='1GB')(lambda x: f(x).sum()))",
        "[2.0, 2.0, 2.0]",
    ),
    Row(
        "Run the program once under `recompute`",
        "f = nn.LSTM(3, 3)\nretape.torch.estimate(lambda x: f(x)[0].sum(), FACTOR)",
        "f = nn.LSTM(3, 3)\nrun = recompute(memory='1GB')\n"
        "x = FACTOR.clone().requires_grad_()\n"
        "(grad(run(lambda x: f(x)[0].sum()), x), run.report.peak_bytes > 0)",
        "x = FACTOR.clone().requires_grad_()\n(grad(lambda x: f(x)[0].sum(), x), True)",
    ),
    Row(
        "pass a list of overloads, or "
        "`context_fn=functools.partial(create_selective_checkpoint_contexts, ...)`",
        "compiled(lambda x: checkpoint(chain, x, policy=lambda op: True))(leaf())",
        """
kept = [torch.ops.aten.sin.default]

def f(x):
    return checkpoint(chain, x, context_fn=functools.partial(
        create_selective_checkpoint_contexts, kept))

grad(compiled(f))
""",
        PLAIN,
    ),
    Row(
        "pass a list of overloads",
        "compiled(lambda x: checkpoint(chain, x, policy=lambda op: True))(leaf())",
        "kept = [torch.ops.aten.sin.default]\n"
        "grad(compiled(lambda x: checkpoint(chain, x, policy=kept)))",
        PLAIN,
    ),
    Row(
        "Pass `dynamic=False`",
        "budget = CompilerBudget('1MB', backend='aot_eager')\n"
        "compiled(lambda x: x.sin().cos().sum(), backend=budget, dynamic=True)(leaf())",
        "budget = CompilerBudget('1MB', backend='aot_eager')\n"
        "grad(compiled(lambda x: x.sin().cos().sum(), backend=budget, dynamic=False))",
        "grad(lambda x: x.sin().cos().sum())",
    ),
    Row(
        "pass `save_inputs=False`",
        """
graph = Graph()
x = graph.leaf(torch.ones(2))
y = graph.apply(torch.exp, x)
z = graph.apply(torch.sin, y)
graph.release(y)
graph.mark_checkpoint(z)
""",
        """
graph = Graph()
x = graph.leaf(torch.ones(2))
y = graph.apply(torch.exp, x)
z = graph.apply(torch.sin, y)
graph.release(y)
graph.mark_checkpoint(z, save_inputs=False)
graph.release(z)
graph.recompute(z)
""",
        "torch.ones(2).exp().sin()",
    ),
    Row(
        "Give at least 1, or `None`",
        """
graph = Graph()
graph.mark_checkpoint(graph.leaf(torch.ones(2)), max_recompute_depth=0)
""",
        """
graph = Graph()
y = graph.apply(torch.exp, graph.leaf(torch.ones(2)))
graph.mark_checkpoint(y, max_recompute_depth=None)
graph.release(y)
graph.recompute(y)
""",
        "torch.ones(2).exp()",
    ),
    Row(
        "call `graph.accept(node)`",
        """
graph = Graph()
node = graph.apply(torch.exp, graph.leaf(torch.zeros(2)))
node.value.mul_(3)
graph.recompute(node)
graph.release(node)
""",
        """
graph = Graph()
node = graph.apply(torch.exp, graph.leaf(torch.zeros(2)))
node.value.mul_(3)
graph.accept(node)
graph.release(node)
graph.recompute(node)
""",
        "[3.0, 3.0]",
    ),
]

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
from tests.hints.rows import rows
from tests.hints.torch_gradients import FACTOR, chain, grad, leaf


def branches(x: Any) -> Any:
    """A loss that depends on a value."""
    return x.sin().sum() if x.sum() > 0 else x.cos().sum()


def broken(x: Any) -> Any:
    """A loss that no compiler takes as one graph."""
    y = x.sin()
    torch._dynamo.graph_break()
    return y.cos().sum()


def grown() -> tuple[Graph, Any]:
    """A graph of two operators whose first value is let go, and the second one."""
    graph = Graph()
    y = graph.apply(torch.exp, graph.leaf(torch.ones(2)))
    z = graph.apply(torch.sin, y)
    graph.release(y)
    return graph, z


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
    *rows(
        "True",
        r"""
retape.torch.names(save='attention')
says: Pass one, as in `names({}=["attention"])`  as: names(save=['attention'])
named(retape.torch.names(save=['attention']))

retape.torch.names()
says: Say which regions to keep (`save=`
named(retape.torch.names(save=['attention']))
says: run again (`again=`
named(retape.torch.names(again=['attention']))

with_modules(lambda model: None)
says: give modules their names with `retape.torch.name_modules`
with_modules(retape.torch.name_modules)

retape.torch.checkpoint_sequential(3, 2, leaf())
PlanError says: Pass an `nn.Sequential`
chain = nn.Sequential(nn.Tanh(), nn.Tanh())
grad(lambda x: retape.torch.checkpoint_sequential(chain, 2, x).sum())
gives: grad(lambda x: x.tanh().tanh().sum())

compiled(broken, backend=CompilerBudget('1MB', backend='aot_eager'))(leaf())
says: pass `per_graph=True`
warnings.filterwarnings('ignore', 'The .grad attribute')
budget = CompilerBudget('1MB', backend='aot_eager', per_graph=True)
grad(compiled(broken, backend=budget))
gives: grad(lambda x: x.sin().cos().sum())

retape.torch.estimate(branches, leaf())
says: Run it once under `recompute`
run = recompute(memory='1GB')
(grad(run(branches)), run.report.peak_bytes > 0)
gives: (grad(branches), True)

f = operator('real', fake=False)
retape.torch.estimate(lambda x: f(x).sum(), leaf())
says: Give it a fake kernel (`torch.library.register_fake`
f = operator('faked', fake=True)  # by torch.library.register_fake
retape.torch.estimate(lambda x: f(x).sum(), leaf()).enough > 0
says: run the program once under `recompute`
f = operator('real', fake=False)
grad(recompute(memory='1GB')(lambda x: f(x).sum()))
gives: [2.0, 2.0, 2.0]

f = nn.LSTM(3, 3)
retape.torch.estimate(lambda x: f(x)[0].sum(), FACTOR)
says: Run the program once under `recompute`
f = nn.LSTM(3, 3)
run = recompute(memory='1GB')
x = FACTOR.clone().requires_grad_()
(grad(run(lambda x: f(x)[0].sum()), x), run.report.peak_bytes > 0)
gives: x = FACTOR.clone().requires_grad_()
(grad(lambda x: f(x)[0].sum(), x), True)

budget = CompilerBudget('1MB', backend='aot_eager')
compiled(lambda x: x.sin().cos().sum(), backend=budget, dynamic=True)(leaf())
says: Pass `dynamic=False`
budget = CompilerBudget('1MB', backend='aot_eager')
grad(compiled(lambda x: x.sin().cos().sum(), backend=budget, dynamic=False))
gives: grad(lambda x: x.sin().cos().sum())

graph, z = grown()
graph.mark_checkpoint(z)
says: pass `save_inputs=False`
graph, z = grown()
graph.mark_checkpoint(z, save_inputs=False)
graph.release(z)
graph.recompute(z)
gives: torch.ones(2).exp().sin()

graph = Graph()
graph.mark_checkpoint(graph.leaf(torch.ones(2)), max_recompute_depth=0)
says: Give at least 1, or `None`
graph = Graph()
y = graph.apply(torch.exp, graph.leaf(torch.ones(2)))
graph.mark_checkpoint(y, max_recompute_depth=None)
graph.release(y)
graph.recompute(y)
gives: torch.ones(2).exp()

graph = Graph()
node = graph.apply(torch.exp, graph.leaf(torch.zeros(2)))
node.value.mul_(3)
graph.recompute(node)
graph.release(node)
says: call `graph.accept(node)`
graph = Graph()
node = graph.apply(torch.exp, graph.leaf(torch.zeros(2)))
node.value.mul_(3)
graph.accept(node)
graph.release(node)
graph.recompute(node)
gives: [3.0, 3.0]
""",
    ),
    *rows(
        "grad(chain)",
        r"""
compiled(recompute(memory='1MB')(chain))(leaf())
says: call it outside of `torch.compile`  as: recompute(memory='1MB')(chain)
grad(recompute(memory='1MB')(chain))

compiled(lambda x: checkpoint(chain, x, policy=lambda op: True))(leaf())
says: pass a list of overloads, or
    `context_fn=functools.partial(create_selective_checkpoint_contexts, ...)`
kept = [torch.ops.aten.sin.default]
def f(x):
    return checkpoint(chain, x, context_fn=functools.partial(
        create_selective_checkpoint_contexts, kept))
grad(compiled(f))
says: pass a list of overloads
kept = [torch.ops.aten.sin.default]
grad(compiled(lambda x: checkpoint(chain, x, policy=kept)))
""",
    ),
]

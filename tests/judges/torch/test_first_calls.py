"""What compiles, called for the first time in a process: in each entrance as later on.

The compiler is imported where it is first asked, in the middle of a recording. It is to
leave alone what watches operators, as it does where it was there before.
"""

import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch._higher_order_ops import (  # noqa: E402
    associative_scan,
    cond,
    scan,
    while_loop,
)
from torch._higher_order_ops import map as over_rows  # noqa: E402
from torch.nn.attention.flex_attention import flex_attention  # noqa: E402
from torch.utils.checkpoint import (  # noqa: E402
    create_selective_checkpoint_contexts as selective,
)

import retape  # noqa: E402
from retape.torch import (  # noqa: E402
    Checkpointed,
    CompilerBudget,
    Graph,
    checkpoint,
    checkpoint_sequential,
    diagnose,
    estimate,
    matrix_products,
    recompute,
)

Function = Callable[[Any], Any]
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.script"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
    pytest.mark.filterwarnings("ignore:A function compiled by"),
    pytest.mark.filterwarnings("ignore:flex_attention called without"),
]
HEADS = torch.linspace(-1, 1, 64).view(1, 1, 4, 16)


class Own(nn.Module):
    """Compiled by its own method."""

    def forward(self, x: Any) -> Any:
        return (x * 2).sin()


def sine(x: Any) -> Any:
    return x.sin()  # PyTorch 2.11 and 2.15 do not compile `torch.sin` in compiled code


def own_method(x: Any) -> Any:
    module = Own()
    module.compile(backend="eager")
    return module(x)


def imported(x: Any) -> Any:
    import torch._dynamo as compiler

    return compiler.optimize("eager")(torch.sin)(x)


def turns(x: Any) -> Any:
    start = torch.tensor(0), x.detach()
    return x * while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, y.sin()), start)[1]


def adding(carry: Any, row: Any) -> Any:
    carry = (carry + row).tanh()
    return carry.clone(), carry * 2


OPERATORS: dict[str, Function] = {
    "scan": lambda x: scan(adding, x[0] * 0, x)[1],
    "compile": lambda x: torch.compile(sine, backend="eager")(x),
    "cond": lambda x: cond(
        torch.tensor(True), lambda y: (y.sin(),), lambda y: (y * 2,), (x,)
    )[0],
    "while_loop": turns,
    "associative_scan": lambda x: associative_scan(
        torch.add, x, 0, combine_mode="generic"
    ),
    "map": lambda x: over_rows(lambda row: (row.sin(),), x)[0],
    "flex_attention": lambda x: flex_attention(HEADS, HEADS, HEADS).sum() * x,
    "a module's method": own_method,
    "the compiler itself": imported,
}


class Calling(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self) -> Any:
        return self.function()


def marked(f: Callable[[], Any]) -> Any:
    graph = Graph()
    node = graph.apply(lambda _: f(), graph.leaf(torch.zeros(())))
    graph.release(node)
    assert torch.isfinite(graph.recompute(node))
    return f()


def estimated(f: Callable[[], Any]) -> Any:
    assert estimate(f).least > 0
    return f()


def sound(f: Callable[[], Any]) -> Any:
    assert diagnose(f).fault is None
    return f()


def faulty(f: Callable[[], Any]) -> Any:
    fault = diagnose(lambda: f() * float("nan")).fault
    assert fault is not None and fault.kind == "forward"
    return f()


KEPT = [torch.ops.aten.mm.default]
FACES: dict[str, Callable[[Callable[[], Any]], Any]] = {
    "memory": lambda f: recompute(memory="1MB")(f)(),
    "snapshots": lambda f: recompute(snapshots=2, stage=3)(f)(),
    "verify": lambda f: recompute(snapshots=2, verify=True)(f)(),
    "policy": lambda f: recompute(memory="1MB", policy=matrix_products)(f)(),
    "loop": lambda f: recompute(snapshots=2, stage=3, mode="loop")(f)(),
    "checkpoint": checkpoint,
    "context_fn": lambda f: checkpoint(f, context_fn=partial(selective, KEPT)),
    "Checkpointed": lambda f: Checkpointed(Calling(f))(),
    "sequential": lambda f: checkpoint_sequential([lambda _: f()], memory="1MB"),
    "estimate": estimated,
    "diagnose": sound,
    "diagnose a fault": faulty,
    "Graph": marked,
    "CompilerBudget": lambda f: torch.compile(
        f, backend=CompilerBudget("1MB", backend="aot_eager")
    )(),
}

REFUSES = {"loop": "mode", "estimate": "cannot be estimated"}


def run(face: Callable[[Callable[[], Any]], Any], operator: Function) -> list[Any]:
    x = torch.linspace(-1, 1, 15).view(5, 3).requires_grad_()
    loss = face(lambda: operator(x).square().sum())
    loss.backward()
    return [loss.detach(), x.grad]


def check(face: str, operator: str) -> None:
    try:
        found = run(FACES[face], OPERATORS[operator])
    except retape.UnsupportedError as error:
        assert face in REFUSES and REFUSES[face] in str(error)
        return
    torch.testing.assert_close(found, run(lambda f: f(), OPERATORS[operator]))


class SameModule(MetaPathFinder, Loader):
    """Imports a module that is there already."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        wanted = self.module.__name__
        return spec_from_loader(name, self) if name == wanted else None

    def create_module(self, spec: Any) -> ModuleType:
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        pass


@pytest.fixture
def not_imported(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if nobody had imported the compiler, which is what counts, and is cheap."""
    import torch._dynamo as compiler

    compiler.reset()
    monkeypatch.setattr(sys, "meta_path", [SameModule(compiler), *sys.meta_path])
    monkeypatch.delitem(sys.modules, "torch._dynamo")
    monkeypatch.delattr(torch, "_dynamo")
    yield
    compiler.reset()


@pytest.mark.usefixtures("not_imported")
@pytest.mark.parametrize("operator", ["scan", "compile", "the compiler itself"])
@pytest.mark.parametrize("face", FACES)
def test_first_call(face: str, operator: str) -> None:
    check(face, operator)
    assert not any("retape" in type(each).__module__ for each in sys.meta_path)


@pytest.mark.slow
@pytest.mark.parametrize("face", ["memory", "loop", "Graph", "diagnose a fault"])
def test_first_call_of_a_process(face: str) -> None:
    code = f"from {__name__} import *; in_processes({face!r})"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr


def in_processes(face: str) -> None:
    """Each operator in a process of its own, made of one without a compiler."""
    torch.set_num_threads(1)
    for operator in OPERATORS:
        assert "torch._dynamo" not in sys.modules
        if (child := os.fork()) == 0:
            try:
                check(face, operator)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0, operator

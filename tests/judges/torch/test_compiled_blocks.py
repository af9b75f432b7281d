"""Compiled functions inside of `recompute`: what the program that is not compiled does.

They run eagerly there, and a warning says so and names what compiled models have.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

import retape.torch  # noqa: E402
from retape.torch import recompute  # noqa: E402
from tests.judges.pairwise import pairwise  # noqa: E402

Program = Callable[[Any], Any]
Compiler = Callable[[Any], Any]
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
]
W = torch.randn(16, 16, generator=torch.Generator().manual_seed(0)) / 4


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Block(nn.Module):
    """A norm with buffers, products and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up = nn.BatchNorm1d(16), nn.Linear(16, 32)
        self.down = nn.Linear(32, 16)

    def forward(self, x: Any) -> Any:
        return x + F.dropout(self.down(F.gelu(self.up(self.norm(x)))), 0.2)


def blocks(compiler: Compiler) -> Program:
    parts = nn.Sequential(*[Block() for _ in range(4)])
    return nn.Sequential(*map(compiler, parts))


def model(compiler: Compiler) -> Program:
    return compiler(nn.Sequential(*[Block() for _ in range(4)]))


def overwrites_its_input(compiler: Compiler) -> Program:
    def body(x: Any) -> Any:
        x.mul_(0.9)
        return torch.tanh(x @ W)

    block = compiler(body)

    def program(x: Any) -> Any:
        for _ in range(3):
            y = x.clone()
            k = y * y
            x = y + block(y) + k.detach()
        return x

    return program


def gives_views(compiler: Compiler) -> Program:
    def body(x: Any) -> Any:
        h = torch.tanh(x @ W)
        return x, x.t(), h, h[:, :5], h.view(-1)

    block = compiler(body)

    def program(x: Any) -> Any:
        for _ in range(3):
            same, turned, h, part, flat = block(x)
            x = h + same + turned.t() * part.sum() + flat.sin().view_as(h)
        return x * 1e-3

    return program


def breaks(compiler: Compiler) -> Program:
    def body(x: Any) -> Any:
        h = torch.tanh(x @ W)
        torch._dynamo.graph_break()
        return F.dropout(h * torch.sigmoid(x), 0.2)

    block = compiler(body)
    return lambda x: block(block(block(x)))


def without_gradient(compiler: Compiler) -> Program:
    ema = torch.zeros(32, 16)
    block = compiler(lambda x: torch.tanh(x @ W))
    note = compiler(lambda x: ema.lerp_(x, 0.3) * 2)

    def program(x: Any) -> Any:
        for _ in range(3):
            with torch.no_grad():
                k = block(x) + note(x)
            x = block(x) * k
        return x

    return program


def changes_shape(compiler: Compiler) -> Program:
    block = compiler(lambda x: torch.softmax(torch.tanh(x @ W), -1))
    return lambda x: sum((block(block(x[:n])).sum() for n in (32, 20, 9)), x * 1)


def checkpoints(compiler: Compiler) -> Program:
    def block(x: Any) -> Any:
        return x + retape.torch.checkpoint(lambda y: F.dropout(y @ W, 0.1), x)

    block = compiler(block)
    return lambda x: block(block(block(x)))


FORMS: dict[str, Callable[[Compiler], Program]] = {
    each.__name__: each
    for each in (
        blocks, model, overwrites_its_input, gives_views, breaks, without_gradient,
        changes_shape, checkpoints,
    )
}  # fmt: skip
# Inductor's code would run beside PyTorch's operators, where nobody sees it.
COMPILERS: dict[str, Compiler] = {
    "aot_eager": lambda f: torch.compile(f, backend="aot_eager"),
    "inductor": lambda f: torch.compile(f, backend="inductor"),
    "eager": lambda f: torch.compile(f, backend="eager"),
}
FACES: dict[str, Callable[[], Any]] = {
    "memory": lambda: recompute(memory="72kB"),
    "verify": lambda: recompute(snapshots=1, stage=1, verify=True),
    "policy": lambda: recompute(memory="1MB", policy=retape.torch.matrix_products),
    "store": lambda: recompute(memory="72kB", store="cpu"),
}


def outcome(make: Callable[[Compiler], Program], compiler: Any, under: Any) -> Any:
    """The loss, gradients and buffers of two steps."""
    torch.manual_seed(0)
    program, found = make(compiler), []
    for _ in range(2):
        x = torch.linspace(-1, 1, 512).reshape(32, 16).requires_grad_()
        with under():
            loss = program(x).square().mean()
        loss.backward()
        found += [loss.detach(), x.grad]
    if isinstance(program, nn.Module):
        found += [p.grad for p in program.parameters()]
        found += [each.clone() for each in program.buffers()]
    return found


COLUMNS = {"name": list(FORMS), "compiler": list(COMPILERS), "face": list(FACES)}


@pytest.mark.parametrize(
    ("name", "compiler", "face"), pairwise(COLUMNS, lambda **_: True, seed=0)
)
def test_they_are_exact_and_a_warning_names_the_door(
    name: str, compiler: str, face: str
) -> None:
    plain = outcome(FORMS[name], lambda f: f, contextlib.nullcontext)
    with pytest.warns(retape.RetapeWarning, match="CompilerBudget") as said:
        found = outcome(FORMS[name], COMPILERS[compiler], FACES[face])
    ours = [each for each in said if each.category is retape.RetapeWarning]
    assert len(ours) == 2, "once for each recording"
    assert len(found) == len(plain)
    assert all(map(torch.equal, found, plain))


def test_the_least_budget_is_that_of_the_operators() -> None:
    def least(compiler: Compiler) -> int | None:
        program, x = model(compiler), torch.ones(32, 16)
        with pytest.raises(retape.BudgetError) as refused:
            with recompute(memory=64):
                program(x).square().mean()
        return refused.value.least

    with pytest.warns(retape.RetapeWarning, match="CompilerBudget"):
        found = least(COMPILERS["aot_eager"])
    assert found == least(lambda f: f)


def test_nothing_is_compiled_inside_and_what_was_compiled_outside_stays() -> None:
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    inner, outer = (torch.compile(f, backend=backend) for f in (torch.cos, torch.sin))
    x = torch.ones(2, requires_grad=True)
    outer(x)
    assert len(graphs) == 1
    for block in (inner, outer):
        with pytest.warns(retape.RetapeWarning, match="eagerly"):
            with recompute(memory="1MB"):
                block(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outer(x)
        assert len(graphs) == 1
        inner(x)
        assert len(graphs) == 2
        retape.torch.estimate(inner, x)
    assert len(graphs) == 2


def test_a_thread_that_compiles_is_not_this_one(monkeypatch: Any) -> None:
    x = torch.ones(2, requires_grad=True)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with recompute(memory="1MB"):
        loss = x.sin().sum()
    assert torch.autograd.grad(loss, x)[0].equal(x.cos())

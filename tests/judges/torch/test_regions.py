"""Regions with names: kept or run again by name, with the plain bits.

Rows are forms of a region and what a policy says of it; columns are the faces and both
recorders. What runs again is counted by an oracle: calls of operators below autograd.
"""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import retape.torch
from retape import BudgetError, PlanError
from retape.torch import checkpoint, matrix_products, name_modules, names, region
from tests.judges.torch.allocator import Peak
from tests.judges.torch.faces import Operators


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.Linear(32, 32), nn.Softmax(1))
        self.mlp = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
        self.drop = nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        with region("attention"):
            x = x + self.attention(x)
        return self.drop(x + self._mlp(x))

    @region("mlp")
    def _mlp(self, x: Tensor) -> Tensor:
        return self.mlp(x)


X = torch.linspace(-1, 1, 24 * 32).reshape(24, 32)


def blocks(count: int = 4) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*[Block() for _ in range(count)])


def step(net: nn.Module, under: Callable[[], Any]) -> tuple[list[Tensor], int]:
    """Gradients of a step, and the GELUs in its backward."""
    torch.manual_seed(1)
    loss, run = under(), Operators()
    with run:
        loss.backward()
    again = run.calls.count(torch.ops.aten.gelu.default)
    return [each.grad for each in net.parameters() if each.grad is not None], again


def loss_of(net: nn.Module) -> Tensor:
    return net(X).square().sum()


def under(policy: Any, memory: Any = "1MB") -> Callable[[nn.Module], Any]:
    return lambda net: retape.torch.recompute(memory=memory, policy=policy)(loss_of)(
        net
    )


def each_checkpointed(policy: Any) -> Callable[[nn.Module], Any]:
    def run(net: Any) -> Tensor:
        x = X
        for block in net:
            x = checkpoint(block, x, policy=policy)
        return x.square().sum()

    return run


# What runs, and how many of the four GELUs run again.
ROWS: dict[str, tuple[Callable[[nn.Module], Any], int]] = {
    "again, by name": (under(names(again=["mlp"])), 4),
    "again, by path": (under(names(again=["[13]/mlp"])), 2),
    "again, by layer": (under(names(again=["[02]"])), 2),
    "another one again": (under(names(again=["attention"])), 0),
    "again but for": (under(names(again=["[0-9]"], save=["mlp"])), 0),
    "all again": (under(names(again=["*"])), 4),
    "again, and so what is in it": (under(names(again=["[0-9]", "mlp"])), 4),
    "saved but for": (under(names(save=["[0-9]"], again=["mlp"])), 4),
    "saved, and all others again": (under(names(save=["0", "0/*"], again=["*"])), 3),
    "saved": (under(names(save=["mlp"])), 0),
    "saved in checkpoints": (each_checkpointed(names(save=["mlp"])), 0),
    "another one saved": (each_checkpointed(names(save=["attention"])), 4),
}


@pytest.mark.usefixtures("accelerated")
@pytest.mark.parametrize("row", ROWS)
def test_what_is_named_is_what_runs_again(row: str) -> None:
    net = blocks()
    plain, _ = step(net, lambda: loss_of(net))
    net.zero_grad()
    (run, again), handle = ROWS[row], name_modules(net)
    found, counted = step(net, lambda: run(net))
    assert all(map(torch.equal, plain, found)) and counted == again
    handle.remove()


@pytest.mark.parametrize("policy", [matrix_products, names(save=["mlp", "attention"])])
def test_what_is_kept_is_in_the_budget(policy: Any) -> None:
    net = blocks(12)
    loss_of(net).backward()  # gradients of parameters are there
    with pytest.raises(BudgetError) as refused:
        step(net, lambda: under(policy, 1)(net))
    memory = refused.value.least
    assert memory is not None
    with Peak() as peak:
        step(net, lambda: under(policy, memory)(net))
    assert peak.nbytes <= memory


def first_layer(layers: nn.ModuleList, norm: nn.Module, x: Tensor) -> Tensor:
    with region("a"):
        x = layers[0](x).sigmoid()
    for layer in layers:
        x = layer(x).sigmoid()
    return x.square().mean()


def norm_in_the_end(layers: nn.ModuleList, norm: nn.Module, x: Tensor) -> Tensor:
    for layer in layers:
        x = nn.functional.dropout(layer(x).sigmoid(), 0.1)
    with region("a"):
        x = norm(x)
    return x.square().mean()


def one_norm_twice(layers: nn.ModuleList, norm: nn.Module, x: Tensor) -> Tensor:
    x = norm(layers[0](x))
    with region("a"):
        x = norm(layers[1](x))
    return x.square().mean()


def own_buffer(layers: nn.ModuleList, norm: nn.Module, x: Tensor) -> Tensor:
    buffer, x = torch.zeros(16).add_(1), layers[0](x)
    with region("a"):
        x = (x * buffer.mean()).tanh()
        buffer.mul_(0.9)
    return (x * buffer.clone()).square().mean()


@pytest.mark.parametrize(
    "program", [first_layer, norm_in_the_end, one_norm_twice, own_buffer]
)
def test_the_budget_that_a_refusal_names_is_taken_at_once(program: Any) -> None:
    torch.manual_seed(0)
    layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(12))
    norm, x = nn.BatchNorm1d(16), torch.randn(12, 16)

    def peak(memory: int) -> int:
        with retape.torch.recompute(memory=memory, policy=names(save=["a"])) as run:
            loss = program(layers, norm, x)
        loss.backward()
        return run.report.peak_bytes

    most = peak(10**9)
    with pytest.raises(BudgetError) as refused:
        peak(300)
    assert refused.value.least is not None
    assert refused.value.least < 2 * most
    peak(refused.value.least)


def test_a_named_module_is_copied_pickled_and_compiled_as_another() -> None:
    net = blocks(1)
    handle, plain = name_modules(net), loss_of(net.eval())
    copies = copy.deepcopy(net), pickle.loads(pickle.dumps(net))
    compiled = torch.compile(net, backend="eager", fullgraph=True)
    assert all(torch.equal(loss_of(each), plain) for each in (*copies, compiled))
    handle.remove()
    with pytest.raises(PlanError, match="regions are.*`attention`"):
        under(names(again=["0"]))(net.train())


def test_the_table_names_regions() -> None:
    net = blocks()
    with retape.torch.recompute(memory="1MB", policy=names(again=["mlp"])) as run:
        with pytest.raises(ValueError, match="inside"), region("broken"):
            raise ValueError("inside")
        loss = loss_of(net)
    loss.backward()
    parts = run.report.plan.parts
    assert [each.state for each in parts if "mlp" in each.regions] == ["run again"] * 4
    assert str(run.report.plan).count("mlp") == 4

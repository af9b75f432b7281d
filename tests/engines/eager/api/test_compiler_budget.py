import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import retape.torch
from retape.torch import CompilerBudget
from tests.engines.eager.compiled.joints import mlp
from tests.judges.torch.allocator import peak_bytes


def gradients(function, model, x):
    torch.manual_seed(1)
    function(x).backward()
    found = [p.grad for p in model.parameters()]
    model.zero_grad()
    return found


def budgeted(model, memory, **options):
    torch._dynamo.reset()
    budget = CompilerBudget(memory, backend="aot_eager", **options)
    return torch.compile(model, backend=budget, fullgraph=True), budget


def least_of(model, x):
    with pytest.raises(retape.BudgetError) as caught:
        budgeted(model, 1)[0](x)
    return caught.value.least


class Sum(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x).square().sum()


@pytest.mark.slow
def test_budgets_are_held_by_the_allocators_count_and_peaks_grow_with_them():
    model, x = Sum(mlp(5, 16)), torch.ones(128, 16)
    plain = gradients(model, model, x)
    compiled, budget = budgeted(model, 10**9)
    compiled(x)
    least, usual = least_of(model, x), budget.plans[0].usual_peak
    assert least < 0.6 * usual
    peaks, costs = [], []
    for k in range(3):
        memory = least + (usual - least) * k // 2
        compiled, budget = budgeted(model, memory)
        for mine, theirs in zip(gradients(compiled, model, x), plain, strict=True):
            assert torch.equal(mine, theirs)
        measured = peak_bytes(lambda c=compiled: c(x).backward())
        model.zero_grad(set_to_none=True)
        assert measured <= budget.plans[0].peak <= memory
        assert measured >= 0.8 * budget.plans[0].peak
        peaks.append(measured)
        costs.append(budget.plans[0].recomputed_flops)
    assert peaks == sorted(peaks)
    assert costs == sorted(costs, reverse=True)
    assert costs[0] > costs[-1] == 0


class Layers(nn.Module):
    """Three layers, each used in one way or another."""

    def __init__(self, layer, use):
        super().__init__()
        self.register_buffer("rate", torch.linspace(1, 2, 32))
        self.layers = nn.ModuleList(layer() for _ in range(3))
        self.use = use

    def forward(self, x):
        for k, layer in enumerate(self.layers):
            x = self.use(self, layer, x, k)
        return x.square().sum()


def with_rates(model, layer, x, k):
    """Reads a buffer in every layer and overwrites it at the end.

    The compiler of PyTorch 2.13 by itself computes other gradients: it runs operators
    again that read the buffer, after it was overwritten.
    """
    x = (layer(x) + model.rate).sin().exp().sin()
    if k == 2:
        model.rate.mul_(2)
    return x


def dropped(model, layer, x, k):
    return torch.dropout(layer(x).sin().exp().sin(), 0.3, train=True)


def with_a_checkpoint(model, layer, x, k):
    return checkpoint(layer, x, use_reentrant=False) if k % 2 else layer(x)


def linear():
    return nn.Linear(32, 32)


KINDS = {
    "rates": (linear, with_rates),
    "dropped": (linear, dropped),
    "normalized": (
        lambda: nn.Sequential(linear(), nn.BatchNorm1d(32)),
        lambda model, layer, x, k: layer(x).sin(),
    ),
    "with a checkpoint": (lambda: mlp(2, 32), with_a_checkpoint),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_and_buffers_are_those_of_the_plain_program(kind):
    x = torch.linspace(-1, 1, 64 * 32).view(64, 32)

    def made():
        torch.manual_seed(0)
        return Layers(*KINDS[kind])

    plain = made()
    theirs = [*gradients(plain, plain, x), *plain.buffers()]
    least = least_of(made(), x)
    for memory in (least, 10**9) if kind == "rates" else (least,):
        model = made()
        compiled, budget = budgeted(model, memory)
        ours = [*gradients(compiled, model, x), *model.buffers()]
        assert budget.plans[0].peak <= memory
        assert all(map(torch.equal, ours, theirs))


def test_an_ample_budget_changes_nothing():
    model, x = Sum(mlp(3)), torch.ones(5, 8)
    compiled, budget = budgeted(model, "1GB")
    compiled(x)
    (plan,) = budget.plans
    assert plan.peak == plan.usual_peak
    assert (plan.least, plan.recomputed_flops) == (None, 0)


def test_a_budget_that_cannot_be_held_says_what_would_do():
    model, x = Sum(mlp(3)), torch.ones(50, 8)
    compiled, _ = budgeted(model, 100)
    with pytest.raises(retape.BudgetError, match="`memory=100` bytes are too few") as e:
        compiled(x)
    with pytest.raises(retape.BudgetError, match="needs at least"):
        compiled(x)
    compiled, budget = budgeted(model, e.value.least)
    compiled(x).backward()
    assert budget.plans[0].peak == budget.plans[0].least == e.value.least


def test_what_the_compiler_gives_up_is_an_error_where_one_graph_is_asked_for():
    """No backend is asked then, so nothing of ours could tell."""
    model, _ = budgeted(nn.LSTM(4, 4), 1)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="LSTM"):
        model(torch.ones(2, 4))
    torch._dynamo.reset()
    budget = CompilerBudget(1, backend="aot_eager")
    torch.compile(nn.LSTM(4, 4), backend=budget)(torch.ones(2, 4))
    assert budget.plans == []


def test_inference_has_no_plan():
    model, x = Sum(mlp(2)), torch.ones(5, 8)
    compiled, budget = budgeted(model, 1)
    with torch.no_grad():
        assert torch.equal(compiled(x), model(x))
    assert budget.plans == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_inductor_is_given_the_partitioner_and_no_cache(monkeypatch):
    from torch._inductor import compile_fx

    given = {}

    def compile_nothing(graph, inputs, config_patches):
        given.update(config_patches)
        return graph.forward

    monkeypatch.setattr(compile_fx, "compile_fx", compile_nothing)
    budget = CompilerBudget(1000)
    assert repr(budget) == "CompilerBudget(1000, backend='inductor')"
    options = {"max_autotune": True}
    torch._dynamo.reset()
    torch.compile(torch.sin, backend=budget, options=options)(torch.ones(3))
    assert given["max_autotune"] and not given["fx_graph_cache"]
    assert given["custom_partitioner_fn"].uuid() is None
    taken = torch.compile(torch.cos, backend=budget, options=given)
    with pytest.raises(retape.PlanError, match="a `custom_partitioner_fn` of its own"):
        taken(torch.ones(3))

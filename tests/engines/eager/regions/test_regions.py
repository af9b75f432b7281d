"""Compiled functions inside of a recording, against the same ones outside."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter
from torch.nn import functional as F

import retape.torch

Program = Callable[[Tensor], Tensor]
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
]


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(function: Callable[..., Any], backend: Any = "aot_eager", **more: Any):
    return torch.compile(function, backend=backend, **more)


class Block(nn.Module):
    """A norm with buffers, products and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up = nn.BatchNorm1d(16), nn.Linear(16, 32)
        self.down = nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.dropout(self.down(F.gelu(self.up(self.norm(x)))), 0.2)


def blocks(count: int = 6) -> nn.Module:
    parts = nn.Sequential(*[Block() for _ in range(count)])
    for part in parts:
        part.compile(backend="aot_eager")
    return parts


def outcome(make: Callable[[], Any], within: Any = None) -> list[Tensor]:
    """The loss, gradients and buffers after two steps."""
    torch.manual_seed(0)
    module = make()
    found: list[Tensor] = []
    for _ in range(2):
        x = torch.linspace(-1, 1, 512).reshape(32, 16).requires_grad_()
        loss = (module if within is None else within()(module))(x).square().mean()
        loss.backward()
        assert x.grad is not None
        found += [loss.detach(), x.grad]
    if isinstance(module, nn.Module):
        found += [p.grad for p in module.parameters() if p.grad is not None]
        found += [each.clone() for each in module.buffers()]
    return found


def assert_exact(make: Callable[[], Any], **options: Any) -> list[Any]:
    """Bitwise what the compiled program does outside; returns the reports."""
    plain, runs = outcome(make), []

    def within() -> Any:
        runs.append(retape.torch.recompute(**options))
        return runs[-1]

    found = outcome(make, within)
    assert all(map(torch.equal, plain, found)) and len(plain) == len(found)
    return [run.report for run in runs]


OPTIONS = [
    {"memory": "72kB"},
    {"snapshots": 2, "stage": 2, "verify": True},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_blocks_are_steps_and_gradients_are_the_same_bits(
    options: Any, accelerated: bool
) -> None:
    for report in assert_exact(blocks, **options):
        assert report.steps == 6  # a block each
        assert report.recomputed > 0


@pytest.mark.slow
def test_inductor_s_regions_are_steps() -> None:
    def make() -> Program:
        w = torch.randn(16)
        block = compiled(lambda x: F.dropout(torch.tanh(x) * w, 0.2), "inductor")
        return lambda x: block(block(block(x)))

    (report, _) = assert_exact(make, snapshots=2, stage=1)
    assert report.steps == 3 and report.recomputed > 0


def overwrites_its_input() -> Program:
    w = torch.randn(16, 16) / 4

    def body(x: Tensor) -> Tensor:
        x.mul_(0.9)
        return torch.tanh(x @ w)

    block = compiled(body)

    def program(x: Tensor) -> Tensor:
        for _ in range(3):
            y = x.clone()
            k = y * y
            x = y + block(y) + k.detach()
        return x

    return program


def gives_views() -> Program:
    w = torch.randn(16, 16) / 4

    def body(x: Tensor) -> tuple[Tensor, ...]:
        h = torch.tanh(x @ w)
        return x, x.t(), h, h[:, :5], h.view(-1)

    block = compiled(body)

    def program(x: Tensor) -> Tensor:
        for _ in range(3):
            same, turned, h, part, flat = block(x)
            x = h + same + turned.t() * part.sum() + flat.sin().view_as(h)
        return x * 1e-3

    return program


def breaks() -> Program:
    w = torch.randn(16, 16) / 4

    def body(x: Tensor) -> Tensor:
        h = torch.tanh(x @ w)
        torch._dynamo.graph_break()
        return F.dropout(h * torch.sigmoid(x), 0.2)

    block = compiled(body)
    return lambda x: block(block(block(x)))


def without_gradient() -> Program:
    w, ema = torch.randn(16, 16) / 4, torch.zeros(32, 16)
    block = compiled(lambda x: torch.tanh(x @ w))
    note = compiled(lambda x: ema.lerp_(x, 0.3) * 2)

    def program(x: Tensor) -> Tensor:
        for _ in range(3):
            with torch.no_grad():
                k = block(x) + note(x)
            x = block(x) * k
        return x

    return program


def changes_shape() -> Program:
    w = torch.randn(16, 16) / 4
    block = compiled(lambda x: torch.softmax(torch.tanh(x @ w), -1), dynamic=True)

    def program(x: Tensor) -> Tensor:
        return sum((block(block(x[:n])).sum() for n in (32, 20, 9)), x * 1)

    return program


def checkpoints() -> Program:
    w = torch.randn(16, 16) / 4
    block = compiled(
        lambda x: x + retape.torch.checkpoint(lambda y: F.dropout(y @ w, 0.1), x)
    )
    return lambda x: block(block(block(x)))


FORMS = [
    overwrites_its_input, gives_views, breaks, without_gradient, changes_shape,
    checkpoints,
]  # fmt: skip


@pytest.mark.slow("checkpoints", "changes_shape")
@pytest.mark.parametrize("make", FORMS)
def test_regions_of_any_form_are_exact(make: Callable[[], Program]) -> None:
    (report, _) = assert_exact(make, snapshots=1, stage=1, verify=True)
    assert report.recomputed > 0


def test_third_runs_follow_a_plan() -> None:
    model, x = blocks(8), torch.randn(32, 16)
    reports = []
    for _ in range(4):
        run = retape.torch.recompute(memory="80kB")
        with run:
            loss = model(x).sum()
        loss.backward()
        reports.append(run.report)
    assert reports[3].recomputed <= reports[0].recomputed
    assert all(report.peak_bytes <= 80_000 for report in reports)


class Shared(nn.Module):
    """A batch norm and a dropout that are called five times."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(32, 32), nn.BatchNorm1d(32)
        self.dropout = nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(5):
            x = self.dropout(torch.relu(self.norm(self.linear(x))))
        return x


def test_the_least_budget_is_enough_once_the_backward_is_compiled() -> None:
    model, x = torch.compile(Shared(), backend="aot_eager"), torch.randn(64, 32)

    def run(memory: int) -> None:
        with retape.torch.recompute(memory=memory):
            loss = model(x).square().mean()
        loss.backward()

    with pytest.raises(retape.BudgetError) as refused:
        run(64)
    assert refused.value.least is not None
    for _ in range(4):
        run(refused.value.least)


def test_a_backward_inside_of_the_recording() -> None:
    model = blocks()

    def gradient() -> list[Tensor]:
        torch.manual_seed(1)
        x = torch.linspace(-1, 1, 512).reshape(32, 16).requires_grad_()
        loss = model(x).sum()
        return list(torch.autograd.grad(loss, [x, *model.parameters()]))

    plain = gradient()
    with retape.torch.recompute(snapshots=2, stage=1):
        inside = gradient()
    assert all(map(torch.equal, plain, inside))


@pytest.mark.parametrize(
    ("backend", "body", "why"),
    [
        (CompileCounter(), torch.sin, "not known how the backend `CompileCounter`"),
        ("aot_eager", lambda x: x[torch.nonzero(x[:, 0])[:, 0]] * 2, "sizes of what"),
    ],
)
def test_what_is_no_region_runs_eagerly_and_says_why(
    backend: Any, body: Any, why: str
) -> None:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        block, x = compiled(body, backend), torch.randn(4, 3, requires_grad=True)
        with retape.torch.recompute(snapshots=1, stage=1):
            with pytest.warns(UserWarning, match=f"one step of its record: .*{why}"):
                y = block(x)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                block(x)  # once for each recording
    (found,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(found, torch.autograd.grad(body(x).sum(), x)[0])


def test_a_policy_sees_the_operators() -> None:
    block, x = compiled(lambda x: (x @ x).sin()), torch.ones(3, 3, requires_grad=True)
    run = retape.torch.recompute(memory="1MB", policy=retape.torch.matrix_products)
    with run, pytest.warns(UserWarning, match="since `policy` names operators"):
        block(x).sum().backward()
    assert run.report.steps > 2


def test_another_release_runs_eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    block, x = compiled(lambda x: (x @ x).sin()), torch.ones(3, 3, requires_grad=True)
    run = retape.torch.recompute(memory="1MB")
    with run, pytest.warns(UserWarning, match="tried in other releases only"):
        block(x).sum().backward()
    assert run.report.steps > 2


def test_what_was_compiled_outside_stays() -> None:
    counter = CompileCounter()
    block, x = compiled(torch.sin, counter), torch.ones(2)
    block(x)
    assert counter.frame_count == 1
    with pytest.warns(UserWarning, match="runs eagerly"):
        with retape.torch.recompute(memory="1MB"):
            block(x)
    block(x)
    assert counter.frame_count == 1


def test_branches_of_the_program_s_own_are_no_regions() -> None:
    w = torch.ones(3, requires_grad=True)
    with retape.torch.recompute(memory="1MB"):
        y = torch.cond(w.sum() > 0, lambda w: (w.sin(),), lambda w: (w.cos(),), (w,))
    y[0].sum().backward()
    assert w.grad is not None and torch.equal(w.grad, w.detach().cos())


def test_a_stance_that_compiles_nothing_is_refused() -> None:
    block, x = compiled(torch.sin), torch.ones(2, requires_grad=True)
    with retape.torch.recompute(memory="1MB"):
        with torch.compiler.set_stance("fail_on_recompile"):
            with pytest.raises(retape.UnsupportedError, match="leave the stance"):
                block(x)


def test_an_estimate_compiles_nothing() -> None:
    counter = CompileCounter()
    block = compiled(lambda x: (x @ x).sin().sum(), counter)
    found = retape.torch.estimate(block, torch.ones(3, 3, requires_grad=True))
    assert counter.frame_count == 0 and found.least > 0


def test_a_thread_that_compiles_is_not_this_one(monkeypatch: Any) -> None:
    x = torch.ones(2, requires_grad=True)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with retape.torch.recompute(memory="1MB"):
        loss = x.sin().sum()
    assert torch.autograd.grad(loss, x)[0].equal(x.cos())

"""Plans that runs leave for the runs after them, as reports tell of them."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import retape.torch
from retape import DiskStore, MemoryStore, StoreError
from retape.storage import AsyncStore
from retape.torch import recompute
from tests.engines.eager.support.seams import forget
from tests.judges.torch.allocator import peak_bytes

MEMORY = 900_000


def net(depth: int = 24, width: int = 48) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [
        m
        for _ in range(depth)
        for m in (nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.1))
    ]
    return nn.Sequential(*layers)


def gradients(
    chain: nn.Module, under: Any, model: Callable[[Tensor], Tensor] | None = None
) -> list[Tensor]:
    """The loss and the gradients of one step, and the random state after it."""
    torch.manual_seed(1)
    with under:
        loss = (model or chain)(torch.ones(256, 48)).square().mean()
    grads = torch.autograd.grad(loss, list(chain.parameters()))
    return [loss, *grads, torch.get_rng_state()]


def ran(
    chain: nn.Module,
    memory: int = MEMORY,
    model: Callable[[Tensor], Tensor] | None = None,
    **options: Any,
) -> Any:
    """The report of one exact run within a budget."""
    under = recompute(memory=memory, **options)
    found = gradients(chain, under, model)
    plain = gradients(chain, contextlib.nullcontext(), model)
    assert all(map(torch.equal, found, plain))
    return under.report


def runs(chain: nn.Module, count: int, memory: int = MEMORY) -> list[Any]:
    return [ran(chain, memory) for _ in range(count)]


def peak_in(chain: nn.Module, job: Callable[[], object]) -> int:
    """As the allocator counts it, gradients apart, which stay."""
    for parameter in chain.parameters():
        parameter.grad = torch.zeros_like(parameter)
    return peak_bytes(job)


@pytest.mark.usefixtures("compiled")
def test_a_program_has_the_same_plan_whenever_it_is_learned() -> None:
    """Its second run follows the optimum for the first, and so do those after it."""
    # Beside the record, whose objects are others, it has room in a megabyte.
    memory = 720_000
    here = runs(net(), 3, memory)
    assert here[0].recomputed > here[1].recomputed == here[2].recomputed > 0
    assert [each.plan.state for each in here] == ["none", "followed", "followed"]
    for fast in (False, True):
        forget()
        retape.torch.accelerate(fast)
        try:
            assert runs(net(), 2, memory) == here[:2]
        finally:
            retape.torch.accelerate(False)


PRINT_IT = """
from tests.engines.eager.plan.test_learned import net, runs
print(runs(net(), 3)[-1])
"""


@pytest.mark.slow
def test_a_program_has_the_same_plan_in_each_process() -> None:
    def there(seed: int) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)
        command = [sys.executable, "-c", PRINT_IT]
        return subprocess.check_output(command, env=environment, text=True)

    found = there(7)
    assert "followed" in found and there(8) == found


def test_no_clock_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> float:
        raise AssertionError("a clock was looked at")

    chain = net()
    names = "time", "perf_counter", "process_time", "monotonic", "thread_time"
    with monkeypatch.context() as patch:
        for name in names:
            patch.setattr(time, name, refuse)
            patch.setattr(time, f"{name}_ns", refuse)
        found = runs(chain, 3)
    assert found[2].recomputed < found[0].recomputed


def test_what_fits_is_not_planned_beside_a_plan_either() -> None:
    chain = net()
    followed = runs(chain, 3)[-1]
    first, *rest = [ran(chain, model=lambda x: chain(x[:4])) for _ in range(3)]
    # Until its first unit is over it might have been the other program.
    assert first.recomputed <= 3 and [each.recomputed for each in rest] == [0, 0]
    assert ran(chain) == followed


def test_a_plan_that_is_dearer_than_rules_is_not_followed() -> None:
    """In little room beside what was measured the best plan ran 1.03 times as much."""
    chain = net(40, 16)
    found = [ran(chain, 729_424, lambda x: chain(x[:, :16])) for _ in range(3)]
    assert found[0].recomputed == found[2].recomputed > 0
    assert [each.plan.state for each in found] == ["none"] * 3


def test_programs_in_one_budget_are_told_apart() -> None:
    chains = [net(), net(30), net(20)]
    first = [runs(chain, 2)[0] for chain in chains]
    # They begin alike: which of them comes is known by which came before.
    for _ in range(2):
        last = [ran(chain) for chain in chains]
    for before, after in zip(first, last, strict=True):
        assert after.recomputed < before.recomputed and after.plan.state == "followed"


@pytest.mark.parametrize("reversed_before", [True, False])
def test_a_plan_is_there_whether_a_run_is_reversed_or_not(
    reversed_before: bool,
) -> None:
    chain, losses = net(), list[Tensor]()
    for _ in range(4):
        with recompute(memory=MEMORY) as run:
            losses.append(chain(torch.ones(256, 48)).square().mean())
        if reversed_before:
            losses.pop().backward()
    assert run.report.plan.state == "followed"


@pytest.mark.slow("compiled")
def test_a_program_that_does_something_else_leaves_its_plan(accelerated: bool) -> None:
    chain = net()
    followed = runs(chain, 3)[-1]
    longer = nn.Sequential(*chain, *net(4))
    other = nn.Sequential(*list(chain)[:30], nn.Linear(48, 96), nn.Linear(96, 48))
    # As many operators on as many bytes, in another order.
    turned = nn.Sequential(*list(chain)[:39], chain[40], chain[39], *chain[41:])
    for changed in (longer, other, turned, chain[:40]):
        assert ran(changed).plan.state == "left"
    # The first unit is that of all; what came after it the last time is expected.
    assert runs(chain, 3)[-1] == followed


def test_an_exception_in_between_changes_nothing() -> None:
    chain = net()
    followed = runs(chain, 3)[-1]

    def fails(x: Tensor) -> Tensor:
        chain[:40](x)
        raise KeyError("in between")

    for _ in range(2):
        with pytest.raises(KeyError):
            ran(chain, model=fails)
    assert ran(chain) == followed


class Hoarder:
    """Holds what each of the last layers reads, as long as it runs or longer."""

    def __init__(self, chain: nn.Sequential, since: int, lets_go: bool = False) -> None:
        self.chain, self.since, self.lets_go = chain, since, lets_go
        self.held: list[Tensor] = []

    def __call__(self, x: Tensor) -> Tensor:
        held: list[Tensor] = []
        for k, layer in enumerate(self.chain):
            if k >= self.since:
                held.append(x)
            x = layer(x)
        self.held = [] if self.lets_go else held
        return x

    def job(self, memory: int, reports: list[Any]) -> None:
        torch.manual_seed(1)
        with recompute(memory=memory) as run:
            loss = self(torch.ones(256, 48)).sum()
        loss.backward()
        self.held = []
        reports.append(run.report)


@pytest.mark.slow("True")
@pytest.mark.parametrize("lets_go", [False, True])
def test_a_program_that_holds_more_is_planned_with_less_room(lets_go: bool) -> None:
    """Also if it does so only from a later run on."""
    chain, memory, reports = net(), 1_700_000, list[Any]()
    hoarder = Hoarder(chain, 100, lets_go)
    for since in (100, 100, 100, 52, 52, 52):
        hoarder.since = since
        assert peak_in(chain, lambda: hoarder.job(memory, reports)) <= memory
    assert [each.plan.state for each in reports[:3]] == ["none", "followed", "followed"]
    assert reports[-1].recomputed > reports[2].recomputed


def test_a_kept_graph_is_reversed_twice_within_the_budget() -> None:
    chain = net()
    plain = gradients(chain, contextlib.nullcontext())[1:-1]
    reports: list[Any] = []

    def job() -> None:
        torch.manual_seed(1)
        with recompute(memory=MEMORY) as run:
            loss = chain(torch.ones(256, 48)).square().mean()
        loss.backward(retain_graph=True)
        loss.backward()
        reports.append(run.report)

    for _ in range(3):
        assert peak_in(chain, job) <= MEMORY
        for parameter, once in zip(chain.parameters(), plain, strict=True):
            assert torch.equal(parameter.grad, 2 * once)  # type: ignore[arg-type]
    assert reports[-1].plan.state == "followed"


def test_plans_with_and_without_a_store_are_told_apart(tmp_path: Path) -> None:
    chain, found = net(), list[int]()
    for _ in range(2):
        for store in (None, DiskStore(tmp_path)):
            found.append(ran(chain, store=store).recomputed)
    assert found[0] > found[2] > found[3]


def test_a_store_with_a_limit_has_no_plan(tmp_path: Path) -> None:
    chain = net()
    small = DiskStore(tmp_path / "small", capacity=64)
    asynchronous = AsyncStore(DiskStore(tmp_path / "other", capacity=64))
    for store in (MemoryStore(capacity_bytes=10**7), small, asynchronous):
        for _ in range(2):
            assert ran(chain, store=store).plan.state == "none"


def test_a_disk_that_is_full_is_a_store_error_under_a_plan_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    chain = net()
    ran(chain, store=DiskStore(tmp_path / "one"))
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(StoreError, match="No space left on device"):
            ran(chain, store=DiskStore(tmp_path / "two"))
    report = ran(chain, store=DiskStore(tmp_path / "three"))
    assert report.plan.state == "followed"

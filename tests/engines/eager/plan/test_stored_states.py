"""Plans of runs whose states are in a store: less is run again than without one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from retape import DiskStore, MemoryStore, StoreError, TieredStore
from retape.engines.eager.plan._in_store import is_unlimited
from retape.engines.eager.plan._learned import forget_lessons
from retape.storage import AsyncStore
from retape.torch import estimate, recompute
from tests.engines.eager.plan.test_learned import MEMORY, net
from tests.engines.eager.support.allocator import peak_bytes

pytestmark = pytest.mark.usefixtures("tensors_alone")
STORES: dict[str, Callable[[Path], Any]] = {
    "disk": DiskStore,
    "tiered": lambda path: TieredStore(MemoryStore(capacity=2), DiskStore(path)),
    "asynchronous": lambda path: AsyncStore(DiskStore(path)),
    "memory": lambda path: MemoryStore(),
    "cpu": lambda path: "cpu",
}


def gradients(chain: nn.Module, under: Any) -> list[Tensor]:
    torch.manual_seed(1)
    with under:
        loss = chain(torch.ones(256, 48)).square().mean()
    return [loss, *torch.autograd.grad(loss, list(chain.parameters()))]


@pytest.mark.parametrize("name", STORES)
def test_a_plan_with_a_store_is_exact_and_leaves_nothing(
    name: str, tmp_path: Path
) -> None:
    chain, reports = net(), []
    plain = gradients(chain, torch.enable_grad())
    for _ in range(2):
        store = STORES[name](tmp_path)
        under = recompute(memory=MEMORY, store=store)
        assert all(map(torch.equal, gradients(chain, under), plain))
        reports.append(under.report)
        assert name == "cpu" or store.nbytes == 0
        assert not list(tmp_path.rglob("step-*"))
    assert [each.plan for each in reports] == ["none", "followed"]
    assert reports[1].recomputed < reports[0].recomputed
    assert reports[1].snapshots > 0


def test_with_a_store_less_is_run_again_in_every_budget(tmp_path: Path) -> None:
    chain = net()
    for parameter in chain.parameters():
        parameter.grad = torch.zeros_like(parameter)
    again: dict[bool, list[int]] = {False: [], True: []}
    budgets = range(800_000, 3_000_000, 700_000)
    for stored, found in again.items():
        for memory in budgets:

            def job(
                stored: bool = stored, memory: int = memory, found: list[int] = found
            ) -> None:
                store = DiskStore(tmp_path) if stored else None
                run = recompute(memory=memory, store=store)
                with run:
                    loss = chain(torch.ones(256, 48)).square().mean()
                loss.backward()
                found[-1:] = [run.report.recomputed]

            found.append(0)
            job()
            assert peak_bytes(job) <= memory
        assert found == sorted(found, reverse=True)
    assert all(a < b for a, b in zip(again[True], again[False], strict=True))


def test_an_estimated_program_has_a_plan_with_a_store_at_once(tmp_path: Path) -> None:
    chain, x = net(), torch.ones(256, 48)

    def program(x: Tensor) -> Tensor:
        return chain(x).square().mean()

    estimate(program, x)
    under = recompute(memory=MEMORY, store=DiskStore(tmp_path))
    under(program)(x).backward()
    assert under.report.plan == "followed"


def test_plans_with_and_without_a_store_are_told_apart(tmp_path: Path) -> None:
    chain, found = net(), list[int]()
    for _ in range(2):
        for store in (None, DiskStore(tmp_path)):
            under = recompute(memory=MEMORY, store=store)
            gradients(chain, under)
            found.append(under.report.recomputed)
    assert found[0] > found[2] > found[3]


def test_a_store_with_a_limit_has_no_plan(tmp_path: Path) -> None:
    chain = net()
    for store in (MemoryStore(capacity_bytes=10**7), DiskStore(tmp_path, capacity=64)):
        assert not is_unlimited(store)
        for _ in range(2):
            under = recompute(memory=MEMORY, store=store)
            gradients(chain, under)
            assert under.report.plan == "none"
    assert not is_unlimited(AsyncStore(DiskStore(tmp_path, capacity=64)))


def test_a_disk_that_is_full_is_a_store_error_under_a_plan_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    chain = net()
    gradients(chain, recompute(memory=MEMORY, store=DiskStore(tmp_path / "one")))
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(StoreError, match="No space left on device"):
            store = DiskStore(tmp_path / "two")
            gradients(chain, recompute(memory=MEMORY, store=store))
    under = recompute(memory=MEMORY, store=DiskStore(tmp_path / "three"))
    gradients(chain, under)
    assert under.report.plan == "followed"
    forget_lessons()

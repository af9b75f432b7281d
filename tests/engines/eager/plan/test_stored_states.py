"""Plans of runs whose states are in a store: less is run again than without one."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from retape import DiskStore, MemoryStore, StoreError
from retape.storage import AsyncStore
from retape.torch import estimate, recompute
from tests.engines.eager.plan.test_learned import MEMORY, gradients, net
from tests.judges.torch.allocator import peak_bytes


def test_a_plan_with_a_store_runs_less_again(tmp_path: Path) -> None:
    chain, reports = net(), []
    for number in range(2):
        under = recompute(memory=MEMORY, store=DiskStore(tmp_path / str(number)))
        gradients(chain, under)
        reports.append(under.report)
    assert [each.plan.state for each in reports] == ["none", "followed"]
    assert reports[1].recomputed < reports[0].recomputed
    assert reports[1].snapshots > 0


@pytest.mark.slow
def test_with_a_store_less_is_run_again_in_every_budget(tmp_path: Path) -> None:
    chain = net()
    for parameter in chain.parameters():
        parameter.grad = torch.zeros_like(parameter)
    again: dict[bool, list[int]] = {False: [], True: []}
    budgets = (800_000, 1_500_000, 2_200_000)
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


@pytest.mark.slow
def test_an_estimated_program_has_a_plan_with_a_store_at_once(tmp_path: Path) -> None:
    chain, x = net(), torch.ones(256, 48)

    def program(x: Tensor) -> Tensor:
        return chain(x).square().mean()

    estimate(program, x)
    under = recompute(memory=MEMORY, store=DiskStore(tmp_path))
    under(program)(x).backward()
    assert under.report.plan.state == "followed"


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
    small = DiskStore(tmp_path / "small", capacity=64)
    asynchronous = AsyncStore(DiskStore(tmp_path / "other", capacity=64))
    for store in (MemoryStore(capacity_bytes=10**7), small, asynchronous):
        for _ in range(2):
            under = recompute(memory=MEMORY, store=store)
            gradients(chain, under)
            assert under.report.plan.state == "none"


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
    assert under.report.plan.state == "followed"

"""Programs of several processes: the same gradients to the bit, and no more talk."""

import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

import retape.torch
from retape import BudgetError, UnsupportedError
from retape.engines.eager.trace._operator_traits import traits_of
from retape.torch import recompute
from tests.engines.eager.support import parallel_programs
from tests.engines.eager.support.collective_programs import programs
from tests.engines.eager.support.processes import run_in_turn, run_processes
from tests.judges.torch.faces import Operators

assert parallel_programs.__name__  # it adds to the programs
# They send to a neighbour, or leave some processes out.
SEVERAL = {
    "attention_in_a_ring", "ring_with_one_buffer", "groups_without_some_processes",
}  # fmt: skip


def _gradients(make: Any, under: Any) -> list[Any]:
    params, forward = make()
    with under:
        loss = forward()
    loss.backward()
    for _, work in getattr(forward, "works", []):
        work.wait()
    grads = [p.grad for p in params]
    grads = [g.full_tensor() if isinstance(g, DTensor) else g for g in grads]
    return [loss.detach(), *grads]


def _same(one: list[Any], other: list[Any]) -> bool:
    return all(
        (a is None and b is None) or torch.equal(a, b)
        for a, b in zip(one, other, strict=True)
    )


def _least(make: Any) -> int:
    """The least budget of the process that needs most."""
    _, forward = make()
    try:
        with recompute(memory=100):
            kept = forward()
    except BudgetError as error:
        least = torch.tensor([error.least])
        dist.all_reduce(least, dist.ReduceOp.MAX)
        del kept
        return int(least)
    raise AssertionError("a hundred bytes were enough")


def _wrong_in(name: str, accelerated: bool = False) -> list[str]:
    """The budgets and runs in which a program is not as it is without a budget."""
    wrong: list[str] = []
    make = programs[name]
    plain = _gradients(make, nullcontext())
    retape.torch.accelerate(accelerated)
    budget = {"memory": _least(make)}
    ways = [{"snapshots": 2, "stage": 4}, *[budget] * 3, {"memory": "1GB"}]
    for run, limits in enumerate(ways):
        under = recompute(**limits)
        if not _same(plain, _gradients(make, under)):
            wrong.append(f"{name}, run {run}: other gradients")
        if limits is budget and under.report.peak_bytes > budget["memory"]:
            wrong.append(f"{name}, run {run}: {under.report.peak_bytes} bytes")
        if run == 0 and not under.report.recomputed and under.report.saved > 4:
            wrong.append(f"{name}: nothing was run again")
    retape.torch.accelerate(False)
    return wrong


def _all_programs(accelerated: bool) -> list[str]:
    return [wrong for name in programs for wrong in _wrong_in(name, accelerated)]


@pytest.fixture
def alone() -> Iterator[None]:
    """A group of this process: its collectives are called, and nobody answers."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("alone")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", sorted(set(programs) - SEVERAL))
def test_collectives_of_a_process_alone_are_exact(name: str) -> None:
    """The fast sibling of those of several."""
    assert _wrong_in(name) == []


def _talk_in_the_backward() -> list[str]:
    """Programs whose backward has other collectives if it recomputes."""
    wrong, counts = [], list[int]()
    for name in ("in_place_sum", "sequence_parallel_by_hand", "functional_sum"):
        for under in (nullcontext(), recompute(snapshots=1, stage=10**6)):
            _, forward = programs[name]()
            with under:
                loss = forward()
            with Operators() as run:
                loss.backward()
            counts.append(sum("c10d" in func.namespace for func in run.calls))
        if counts[-1] != counts[-2]:
            wrong.append(f"{name}: {counts[-1]} collectives, {counts[-2]} without us")
    # Those that the backward of a program has itself are counted.
    return wrong if counts[2] else [*wrong, "none was counted"]


def _checkpointed() -> list[str]:
    wrong = []
    for name in ("in_place_sum", "sequence_parallel_with_norms", "autograd_gather"):
        plain = _gradients(programs[name], nullcontext())
        params, forward = programs[name]()
        retape.torch.checkpoint(forward).backward()
        again = [plain[0], *[p.grad for p in params]]
        whole = [getattr(g, "full_tensor", lambda g=g: g)() for g in again]
        wrong += [] if _same(plain, whole) else [f"{name}: other gradients"]
    return wrong


def _all_trainings() -> list[str]:
    """The trainings and budgets that are not as they are without a budget."""
    from tests.engines.eager.support.distributed_training import Block, trainings

    wrong: list[str] = []
    for name, train in trainings.items():
        plain = train(nullcontext)
        probe = Block(1)
        train(probe)
        for memory in (probe.least, 2 * probe.least, 10**9):
            block = Block(memory)
            if not _same(plain, train(block)):
                wrong.append(f"{name} in {memory}: other gradients")
            if block.peak > memory:
                wrong.append(f"{name} in {memory}: {block.peak} bytes")
            # A whole schedule is over, backwards and all, before it would have to.
            again = block.recomputed or name == "whole pipeline"
            if memory == probe.least and not again:
                wrong.append(f"{name}: nothing was run again")
    return wrong


def _buckets() -> list[str]:
    """PyTorch makes them anew in the second forward: as many bytes as gradients."""
    torch.manual_seed(0)
    wide = [torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh())] * 6
    model = DistributedDataParallel(torch.nn.Sequential(*wide))
    found = []
    for _ in range(3):
        with recompute(memory="1GB") as run:
            loss = model(torch.ones(1, 64)).sum()
        loss.backward()
        found.append((run.report.steps, run.report.peak_bytes))
    return [] if len(set(found)) == 1 else [f"steps and bytes: {found}"]


def _loop_refusal() -> list[str]:
    with pytest.raises(UnsupportedError) as caught:
        with recompute(memory="1MB", mode="loop"):
            dist.all_reduce(torch.ones(3))
    named = "`c10d.allreduce_.default` talks to other processes"
    return [] if str(caught.value).startswith(named) else [str(caught.value)]


JOBS: dict[str, tuple[Callable[..., list[str]], tuple[Any, ...]]] = {
    "programs": (_all_programs, (True,)),
    "what is recomputed repeats no collective": (_talk_in_the_backward, ()),
    "regions": (_checkpointed, ()),
    "a loop refuses by name": (_loop_refusal, ()),
    "pipelines and replicas": (_all_trainings, ()),
    "buckets of replicas are none of the program": (_buckets, ()),
}


@pytest.fixture(scope="module")
def in_two(compiled: None) -> Any:
    """What is wrong in two processes, which do all jobs one after the other."""
    return run_in_turn(2, **JOBS)


@pytest.mark.slow
@pytest.mark.parametrize("job", JOBS)
def test_two_processes_find_nothing_wrong(job: str, in_two: Any) -> None:
    assert in_two[job] == [[], []]


@pytest.mark.slow
def test_collectives_of_four_processes_are_exact() -> None:
    assert run_processes(_all_programs, 4, False) == [[]] * 4


def forward(held_for: float) -> torch.Tensor:
    """As with gloo's threads: what was read is held after the collective has ended."""
    h = torch.ones(64, 16, requires_grad=True)
    for _ in range(3):
        h = torch.sin(h)
        read = [torch.cos(h.detach()) for _ in range(4)]
        for each in read:
            h = h * functional.all_reduce(each, "sum", dist.group.WORLD)
        if held_for:
            threading.Timer(held_for, read.clear).start()
        del read, each
    return h.sum()


@pytest.mark.usefixtures("alone")
def test_a_budget_is_not_refused_for_what_a_slow_thread_holds() -> None:
    """Bytes that sending threads hold a moment too long are waited for."""
    least = _least(lambda: (None, lambda: forward(0.0)))
    with recompute(memory=least) as run:
        loss = forward(held_for=0.3)
    loss.backward()
    assert run.report.peak_bytes <= least


def test_writes_into_the_memory_of_other_processes_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="symmetric memory"):
        traits_of(torch.ops.symm_mem.two_shot_all_reduce_.default)


def test_every_collective_that_fills_its_arguments_is_in_the_table() -> None:
    """Schemas do not say what is written: their names and arguments do."""
    reads_only = ("wait", "barrier", "send", "check", "_wrap", "get_process_group")
    for schema in torch._C._jit_get_all_schemas():
        space, name = schema.name.split("::")
        if space != "c10d" or any(part in name for part in reads_only):
            continue
        func = getattr(getattr(torch.ops.c10d, name), schema.overload_name or "default")
        assert traits_of(func).writes == (0,), name
        assert traits_of(func).collective


def test_what_waits_makes_nothing() -> None:
    names = {each.name for each in torch._C._jit_get_all_schemas()}
    waits = [each for each in names if each.startswith("_c10d_functional::wait")]
    assert waits
    for name in waits:
        func = getattr(torch.ops._c10d_functional, name.split("::")[1]).default
        assert traits_of(func).aside, name

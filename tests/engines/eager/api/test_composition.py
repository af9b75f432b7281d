"""Together with the rest of PyTorch, and the errors that say what to do."""

import gc
import threading
import weakref

import pytest
import torch
from torch import nn

import retape.torch
from retape._errors import DeterminismError


def small(memory: int | None = None, **options: object) -> object:
    if memory is not None:
        return retape.torch.recompute(memory=memory)
    return retape.torch.recompute(snapshots=2, stage=4, **options)  # type: ignore[arg-type]


def run(w: torch.Tensor, under: object) -> torch.Tensor:
    with under:  # type: ignore[attr-defined]
        h = torch.ones(3, 6)
        for _ in range(12):
            h = torch.tanh(h @ w)
        return h.square().sum()


def weight() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(6, 6, requires_grad=True)


def test_an_overwritten_parameter_is_an_error() -> None:
    w = weight()
    loss = run(w, small())
    with torch.no_grad():
        w.add_(1)
    with pytest.raises(retape.torch.MutationError, match="before the optimiser's step"):
        loss.backward()


def test_a_write_through_data_is_found_by_verify() -> None:
    w = weight()
    loss = run(w, small(verify=True))
    w.data.add_(1)
    with pytest.raises(retape.torch.MutationError, match="`.data`, NumPy"):
        loss.backward()


def test_a_different_result_is_found_by_verify() -> None:
    w = weight()
    library = torch.library.Library("retape_test", "DEF")
    library.define("impure(Tensor x) -> Tensor")
    calls: list[int] = []

    def impure(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x * len(calls)

    library.impl("impure", impure, "CPU")
    with small(verify=True):  # type: ignore[attr-defined]
        h = torch.ones(6, 6)
        with torch.no_grad():
            h = torch.ops.retape_test.impure(h)
        for _ in range(8):
            h = torch.tanh(h * w)
        loss = h.sum()
    with pytest.raises(DeterminismError, match="Step `1`, `retape_test.impure"):
        loss.backward()


def test_a_freed_graph_is_an_error() -> None:
    loss = run(weight(), small())
    loss.backward()
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        loss.backward()


def test_nothing_is_left_after_the_backward() -> None:
    w = weight()
    with small() as _:  # type: ignore[attr-defined]
        h = torch.ones(3, 6) @ w
        dead = weakref.ref(h.untyped_storage())
        loss = torch.tanh(h).square().sum()
        del h
    gc.disable()
    try:
        loss.backward()
        del loss
        assert dead() is None
    finally:
        gc.enable()


def test_an_abandoned_graph_is_freed_without_the_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        with retape.torch.recompute(memory="1MB"):
            h = torch.sin(weight())
            dead = weakref.ref(h.untyped_storage())
            h = h.exp().sum()
        del h
        assert dead() is None
    finally:
        gc.enable()


def test_threads_with_runs_of_their_own_share_parameters() -> None:
    w = weight()
    run(w, torch.no_grad())
    (expected,) = torch.autograd.grad(run(w, small()), w)
    found: list[torch.Tensor] = []

    def work() -> None:
        for _ in range(5):
            found.extend(torch.autograd.grad(run(w, small()), w))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 20
    assert all(torch.equal(grad, expected) for grad in found)


def test_one_graph_may_be_reversed_by_two_threads() -> None:
    w = weight()
    loss = run(w, small())
    found: list[torch.Tensor] = []

    def work() -> None:
        found.extend(torch.autograd.grad(loss, w, retain_graph=True))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (expected,) = torch.autograd.grad(run(w, torch.enable_grad()), w)
    assert len(found) == 3
    assert all(torch.equal(grad, expected) for grad in found)


def test_a_gradient_scaler_sees_the_same_gradients() -> None:
    grads = []
    for under in (torch.enable_grad(), small()):
        w = weight()
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        optimiser = torch.optim.SGD([w], 0.1)
        scaler.scale(run(w, under)).backward()
        scaler.step(optimiser)
        scaler.update()
        grads.append(w.detach().clone())
    assert torch.equal(*grads)


def test_the_inner_of_two_nested_runs_does_nothing() -> None:
    w = weight()
    outer, inner = small(), small()
    with outer:  # type: ignore[attr-defined]
        loss = run(w, inner)
    loss.backward()
    assert inner.report.steps == 0 < outer.report.steps  # type: ignore[attr-defined]


def test_a_decorator_makes_a_run_of_each_call() -> None:
    w = weight()
    under = small()
    decorated = under(lambda: run(w, torch.enable_grad()))  # type: ignore[operator]
    first, second = decorated(), decorated()
    (a,) = torch.autograd.grad(first, w)
    (b,) = torch.autograd.grad(second, w)
    assert torch.equal(a, b) and under.report.recomputed > 0  # type: ignore[attr-defined]


def test_an_exception_inside_ends_the_recording() -> None:
    with pytest.raises(ZeroDivisionError), small():  # type: ignore[attr-defined]
        torch.ones(1) + 1 // 0
    assert run(weight(), small()).requires_grad


def test_sparse_results_are_nobody_s_but_the_program_s() -> None:
    with small():  # type: ignore[attr-defined]
        sparse = torch.eye(3).to_sparse()
    assert torch.equal(sparse.to_dense(), torch.eye(3))


def _ddp_worker(rank: int, path: str, queue: object) -> None:
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{path}", rank=rank, world_size=2
    )
    grads = []
    for memory in (None, 40_000):
        torch.manual_seed(0)
        layers = [m for _ in range(8) for m in (nn.Linear(16, 16), nn.BatchNorm1d(16))]
        model = DistributedDataParallel(nn.Sequential(*layers, nn.Dropout(0.2)))
        torch.manual_seed(rank)
        x = torch.randn(32, 16)
        under = torch.enable_grad() if memory is None else small(memory)
        with under:  # type: ignore[attr-defined]
            loss = model(x).square().sum()
        loss.backward()
        state = [p.grad for p in model.parameters()] + list(model.buffers())
        grads.append([t.detach().clone() for t in state])  # type: ignore[union-attr]
    same = all(torch.equal(a, b) for a, b in zip(*grads, strict=True))
    queue.put((rank, same, under.report.recomputed))  # type: ignore[attr-defined, union-attr]
    dist.destroy_process_group()


def test_two_processes_of_distributed_data_parallel(tmp_path: object) -> None:
    context = torch.multiprocessing.get_context("spawn")
    queue = context.Queue()
    args = [(rank, str(tmp_path) + "/store", queue) for rank in range(2)]
    workers = [context.Process(target=_ddp_worker, args=each) for each in args]
    for worker in workers:
        worker.start()
    found = sorted(queue.get(timeout=300) for _ in workers)
    for worker in workers:
        worker.join()
    assert [(rank, same) for rank, same, _ in found] == [(0, True), (1, True)]
    assert all(recomputed > 0 for *_, recomputed in found)

"""Other parts of PyTorch around and inside a recomputation: the same, or refused."""

import threading
from typing import Any

import pytest
import torch
from test_forms import assert_same
from torch import nn
from torch._dynamo.testing import CompileCounter

import retape.torch
from retape._errors import UnsupportedError


def small() -> Any:
    return retape.torch.recompute(snapshots=2, stage=4)


def weight() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(6, 6, requires_grad=True)


def body(w: torch.Tensor) -> torch.Tensor:
    h = torch.ones(3, 6)
    for _ in range(12):
        h = torch.tanh(h @ w)
    return h.square().sum()


def test_a_double_backward_inside_and_outside() -> None:
    def second(under: Any) -> list[torch.Tensor]:
        w = weight()
        with under:
            loss = body(w)
            (first,) = torch.autograd.grad(loss, w, create_graph=True)
            penalty = first.square().sum() + loss
        penalty.backward()
        assert w.grad is not None
        return [w.grad, first.detach()]

    assert_same(second(torch.enable_grad()), second(small()))


def test_autocast_inside_a_chain_and_a_scaler_outside() -> None:
    def grads(forward: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(*[nn.Linear(16, 16) for _ in range(8)])
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
        with torch.autocast("cpu", torch.bfloat16):
            loss = forward(model, torch.ones(4, 16)).float().square().sum()
        scaler.scale(loss).backward()
        return [p.grad for p in model.parameters()]  # type: ignore[misc]

    def chain(model: Any, x: torch.Tensor) -> torch.Tensor:
        return retape.torch.checkpoint_sequential(model, input=x, memory="20kB")

    plain = grads(lambda model, x: model(x))
    for _ in range(2):
        assert_same(plain, grads(chain))


def test_hooks_run_as_often_and_with_the_same_gradients() -> None:
    def seen(under: Any) -> list[torch.Tensor]:
        w, found = weight(), []
        w.register_post_accumulate_grad_hook(lambda p: found.append(p.grad.clone()))
        module = nn.Tanh()
        module.register_full_backward_hook(lambda m, gi, go: found.extend((*gi, *go)))
        with under:
            h = torch.ones(3, 6)
            for _ in range(6):
                h = module(h @ w)
                h.register_hook(lambda g: found.append(g.clone()))
        h.sum().backward()
        return found

    assert_same(seen(torch.enable_grad()), seen(small()))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is dep:DeprecationWarning")
@pytest.mark.parametrize("transform", ["vmap", "jvp"])
def test_function_transforms_inside_give_the_same(transform: str) -> None:
    w = weight().detach()
    jobs = {
        "vmap": lambda: torch.vmap(body)(torch.stack([w, 2 * w])),
        "jvp": lambda: torch.func.jvp(body, (w,), (w,))[1],
    }
    expected = jobs[transform]()
    with small():
        found = jobs[transform]()
    assert torch.equal(found, expected)


def test_vmap_around_a_recomputation() -> None:
    w = weight()
    both = torch.stack([w.detach(), 2 * w.detach()]).requires_grad_()
    expected = torch.autograd.grad(torch.vmap(body)(both).sum(), both)[0]
    run = small()
    found = torch.autograd.grad(torch.vmap(run(body))(both).sum(), both)[0]
    assert torch.equal(found, expected)


def test_reverse_transforms_are_refused_by_name() -> None:
    w = weight().detach()
    with pytest.raises(UnsupportedError, match="inside of `torch.func.grad`"):
        torch.func.grad(small()(body))(w)
    with small(), pytest.raises(RuntimeError, match="support saved tensor hooks"):
        torch.func.grad(body)(w)
    run = small()  # nothing is left behind by the refusal
    with run:
        body(weight())
    assert run.report.steps > 20


def test_functional_call_of_a_recomputed_module() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))
    wrapped = retape.torch.Checkpointed(model)
    other = {k: (v + 1).requires_grad_() for k, v in model.state_dict().items()}
    x = torch.ones(2, 6)
    grads = []
    for module in (model, wrapped):
        y = torch.func.functional_call(module, other, (x,))
        grads.append(torch.autograd.grad(y.sum(), list(other.values())))
    assert_same(list(grads[0]), list(grads[1]))


@pytest.mark.parametrize("accelerated", [False, True])
def test_compiled_code_inside_runs_eagerly_with_a_warning(accelerated: bool) -> None:
    w = weight()
    expected = torch.autograd.grad(body(w), w)[0]
    counting = CompileCounter()
    compiled = torch.compile(body, backend=counting)
    run = small()
    retape.torch.accelerate(accelerated)
    with run, pytest.warns(UserWarning, match="It runs eagerly there") as caught:
        loss = compiled(w)
    retape.torch.accelerate(False)
    assert len(caught) == 1 and counting.frame_count == 0
    assert torch.equal(torch.autograd.grad(loss, w)[0], expected)
    assert run.report.recomputed > 0


def test_a_recomputation_inside_compiled_code_is_refused() -> None:
    w, run = weight(), small()

    def step(w: torch.Tensor) -> torch.Tensor:
        with run:
            return body(w)

    with pytest.raises(UnsupportedError, match="inside of a compiled function"):
        torch.compile(step, backend="eager")(w)
    step(w).backward()
    assert run.report.recomputed > 0


def test_compiled_code_inside_a_loop_runs_eagerly() -> None:
    w = weight()
    expected = torch.autograd.grad(body(w), w)[0]
    counting = CompileCounter()
    with retape.torch.recompute(memory="1MB", mode="loop"):
        loss = torch.compile(body, backend=counting)(w)
    assert counting.frame_count == 0
    assert torch.equal(torch.autograd.grad(loss, w)[0], expected)


def test_runs_that_end_out_of_order_leave_the_compiler_as_it_was() -> None:
    counting = CompileCounter()
    first_is_in, second_is_in = threading.Event(), threading.Event()

    def first() -> None:
        with small():
            first_is_in.set()
            second_is_in.wait(10)

    thread = threading.Thread(target=first)
    thread.start()
    first_is_in.wait(10)
    with small():
        second_is_in.set()
        thread.join()
        with pytest.warns(UserWarning, match="runs eagerly there"):
            torch.compile(torch.sin, backend=counting)(torch.ones(1))
        assert counting.frame_count == 0
    torch.compile(lambda x: x * 2, backend=counting)(torch.ones(1))
    assert counting.frame_count == 1


def _fsdp_worker(rank: int, path: str, queue: Any) -> None:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{path}", rank=rank, world_size=2
    )
    mesh = init_device_mesh("cpu", (2,))
    found: list[Any] = []
    for way in ("plain", "unit", "resharded", "kept"):
        torch.manual_seed(0)
        model = nn.Sequential(
            *[
                nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Dropout(0.2))
                for _ in range(4)
            ]
        )
        if way == "unit":
            for k in range(4):
                model[k] = retape.torch.Checkpointed(model[k])
        for unit in model:
            fully_shard(unit, mesh=mesh, reshard_after_forward=way != "kept")
        torch.manual_seed(rank)
        x = torch.randn(8, 16)
        try:
            if way in ("resharded", "kept"):
                with retape.torch.recompute(snapshots=2, stage=4):
                    loss = model(x).square().sum()
            else:
                loss = model(x).square().sum()
            loss.backward()
            grads = [p.grad.full_tensor().clone() for p in model.parameters()]  # type: ignore[union-attr]
            found.append([grad.tolist() for grad in grads])
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")
    queue.put((rank, found))
    dist.destroy_process_group()


def test_two_processes_of_fully_sharded_data_parallel(tmp_path: Any) -> None:
    context = torch.multiprocessing.get_context("spawn")
    queue = context.Queue()
    args = [(rank, str(tmp_path) + "/store", queue) for rank in range(2)]
    workers = [context.Process(target=_fsdp_worker, args=each) for each in args]
    for worker in workers:
        worker.start()
    results = [queue.get(timeout=120) for _ in workers]
    for worker in workers:
        worker.join()
    for _, (plain, unit, *whole) in results:
        assert unit == plain
        for refusal in whole:
            assert refusal.startswith("UnsupportedError: `fsdp::")
            assert "fully_shard(retape.torch.Checkpointed(unit))" in refusal

"""Other parts of PyTorch around and inside a recomputation: the same, or refused."""

import threading
from typing import Any

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch._higher_order_ops import while_loop as _while_loop

import retape.torch
from retape._errors import UnsupportedError
from tests.engines.eager.api.test_program_forms import assert_same

_DISABLE = torch.autograd.graph.disable_saved_tensors_hooks


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


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is dep")
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


def test_reverse_transforms_around_are_refused_by_name() -> None:
    w = weight().detach()
    with pytest.raises(UnsupportedError, match="inside of `torch.func.grad`"):
        torch.func.grad(small()(body))(w)
    run = small()  # nothing is left behind by the refusal
    with run:
        body(weight())
    assert run.report.steps > 20


def row(w: torch.Tensor) -> torch.Tensor:
    return torch.sin(torch.ones(6) @ w).square().sum()


def dual(w: torch.Tensor) -> torch.Tensor:
    with forward_ad.dual_level():
        value = body(forward_ad.make_dual(w, torch.ones_like(w)))
        return sum(forward_ad.unpack_dual(value), torch.zeros(()))


INSIDE = {
    "grad": lambda w: torch.func.grad(body)(w).square().sum() + body(w),
    "vjp": lambda w: torch.func.vjp(body, w)[1](torch.ones(()))[0].square().sum(),
    "hessian": lambda w: torch.func.hessian(lambda v: row(w * v))(w[0]).sum(),
    "jvp": lambda w: torch.func.jvp(body, (w,), (torch.ones_like(w),))[1],
    "vmap of grad": lambda w: torch.vmap(torch.func.grad(row))(
        torch.stack([w, 2 * w])
    ).sum(),
    "dual numbers": dual,
    "while_loop": lambda w: _while_loop(
        lambda k, h: k < 3, lambda k, h: (k + 1, h.sin()), (torch.tensor(0), w * 1)
    )[1].sum(),
    "cond": lambda w: torch.cond(
        w.sum() > 0, lambda w: (w.sin(),), lambda w: (w.cos(),), (w,)
    )[0].sum(),
    "sparse": lambda w: torch.sparse.mm(torch.eye(6).to_sparse(), w.sin()).sum(),
    "compressed": lambda w: (torch.eye(6).to_sparse_csr() @ w.cos()).square().sum(),
    "sparse of a value": lambda w: torch.sparse.mm(w.sin().to_sparse(), w).sum(),
}


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is dep")
@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
@pytest.mark.parametrize("accelerated", [False, True])
@pytest.mark.parametrize("form", INSIDE)
def test_what_computes_derivatives_or_branches_inside_is_exact(
    form: str, accelerated: bool
) -> None:
    def program(w: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(w).sin()
        return body(h + w) + INSIDE[form](h * 0.5) + body(w)

    w = weight()
    (plain,) = torch.autograd.grad(program(w), w)
    retape.torch.accelerate(accelerated)
    try:
        for run in (small(), retape.torch.recompute(memory="1MB")):
            with run:
                loss = program(w)
            assert torch.equal(torch.autograd.grad(loss, w)[0], plain)
        found = retape.torch.checkpoint(program, w)
        assert torch.equal(torch.autograd.grad(found, w)[0], plain)
    finally:
        retape.torch.accelerate(False)
    assert torch.autograd.graph.disable_saved_tensors_hooks is _DISABLE


REFUSED = {
    "write `if`": lambda w: torch.cond(w.sum() > 0, torch.sin, torch.cos, (w,)),
    "traced to a graph": lambda w: torch.func.linearize(body, w)[1](w),
    "nested tensors": lambda w: torch.nested.as_nested_tensor(
        [w[:2], w[2:]], layout=torch.jagged
    ).values(),
}


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is dep")
@pytest.mark.parametrize("reason", REFUSED)
def test_what_cannot_be_recorded_is_refused_by_name(reason: str) -> None:
    w = weight()
    with pytest.raises(UnsupportedError, match=f"(?i){reason}"), small():
        REFUSED[reason](w * 1)


def test_a_branch_that_reads_a_parameter_by_closure_is_refused() -> None:
    """It would be left without a gradient, in silence."""
    w, x = weight(), torch.ones(6, 6)
    named = "torch.cond.* is none of its operands.*Pass the tensor as an operand"
    with pytest.raises(UnsupportedError, match=named), small():
        torch.cond(x.sum() > 0, lambda v: (v @ w,), lambda v: (v * 2,), (x,))


def test_functions_whose_body_runs_later_are_refused() -> None:
    async def later(w: torch.Tensor) -> torch.Tensor:
        return body(w)

    def stream(w: torch.Tensor) -> Any:
        yield body(w)

    for function in (later, stream):
        with pytest.raises(UnsupportedError, match="runs after the call is over"):
            small()(function)


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

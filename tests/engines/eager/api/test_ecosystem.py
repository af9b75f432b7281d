"""Other parts of PyTorch around and inside a recomputation: the same, or refused."""

import threading
from typing import Any

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch._dynamo.testing import CompileCounter

import retape.torch
from retape import DeterminismError

_DISABLE = torch.autograd.graph.disable_saved_tensors_hooks


def small(**options: Any) -> Any:
    return retape.torch.recompute(snapshots=2, stage=4, **options)


def weight() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(6, 6, requires_grad=True)


def body(w: torch.Tensor) -> torch.Tensor:
    h = torch.ones(3, 6)
    for _ in range(12):
        h = torch.tanh(h @ w)
    return h.square().sum()


def loss_in(under: Any, w: torch.Tensor) -> torch.Tensor:
    with under:
        return body(w)


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
    "compressed": lambda w: (torch.eye(6).to_sparse_csr() @ w.cos()).square().sum(),
}


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is dep")
@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
@pytest.mark.parametrize("form", INSIDE)
def test_what_computes_derivatives_or_branches_inside_is_exact(
    form: str, accelerated: bool
) -> None:
    def program(w: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(w).sin()
        return body(h + w) + INSIDE[form](h * 0.5) + body(w)

    w = weight()
    (plain,) = torch.autograd.grad(program(w), w)
    for run in (small(), retape.torch.recompute(memory="1MB")):
        with run:
            loss = program(w)
        assert torch.equal(torch.autograd.grad(loss, w)[0], plain)
    found = retape.torch.checkpoint(program, w)
    assert torch.equal(torch.autograd.grad(found, w)[0], plain)
    assert torch.autograd.graph.disable_saved_tensors_hooks is _DISABLE


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


def test_a_different_result_is_found_by_verify() -> None:
    w = weight()
    library = torch.library.Library("retape_test", "DEF")
    library.define("impure(Tensor x) -> Tensor")
    calls: list[int] = []

    def impure(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x * len(calls)

    library.impl("impure", impure, "CPU")
    with small(verify=True):
        h = torch.ones(6, 6)
        with torch.no_grad():
            h = torch.ops.retape_test.impure(h)
        for _ in range(8):
            h = torch.tanh(h * w)
        loss = h.sum()
    with pytest.raises(DeterminismError, match="Step `1`, `retape_test.impure"):
        loss.backward()


def test_a_freed_graph_is_an_error() -> None:
    loss = loss_in(small(), weight())
    loss.backward()
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        loss.backward()


@pytest.mark.parametrize("one_graph", [False, True])
def test_threads_share_parameters_or_a_graph(one_graph: bool) -> None:
    w = weight()
    (expected,) = torch.autograd.grad(body(w), w)
    shared, found = loss_in(small(), w), list[torch.Tensor]()

    def work() -> None:
        for _ in range(5):
            loss = shared if one_graph else loss_in(small(), w)
            found.extend(torch.autograd.grad(loss, w, retain_graph=True))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 20
    assert all(torch.equal(grad, expected) for grad in found)


def test_the_inner_of_two_nested_runs_does_nothing() -> None:
    w = weight()
    outer, inner = small(), small()
    with outer:
        loss = loss_in(inner, w)
    loss.backward()
    assert inner.report.steps == 0 < outer.report.steps


def test_a_decorator_makes_a_run_of_each_call() -> None:
    w = weight()
    under = small()
    decorated = under(lambda: body(w))
    first, second = decorated(), decorated()
    (a,) = torch.autograd.grad(first, w)
    (b,) = torch.autograd.grad(second, w)
    assert torch.equal(a, b) and under.report.recomputed > 0


def test_an_exception_inside_ends_the_recording() -> None:
    with pytest.raises(ZeroDivisionError), small():
        torch.ones(1) + 1 // 0
    assert loss_in(small(), weight()).requires_grad

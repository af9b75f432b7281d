"""checkpoint and Checkpointed. For checkpoint_sequential see test_sequence."""

import pytest
import torch
import torch.utils.checkpoint
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import retape.torch


def outcome(model: nn.Module, forward: object) -> list[torch.Tensor]:
    torch.manual_seed(1)
    loss = forward(torch.ones(4, 8).cumsum(0))  # type: ignore[operator]
    loss.square().sum().backward()
    grads = [p.grad.clone() for p in model.parameters()]  # type: ignore[union-attr]
    return [*grads, *(b.clone() for b in model.buffers()), torch.get_rng_state()]


def assert_same(one: list[torch.Tensor], other: list[torch.Tensor]) -> None:
    assert len(one) == len(other)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def chosen(ctx: object, op: object, *args: object, **kwargs: object) -> object:
    assert ctx.is_recompute is False  # type: ignore[attr-defined]
    keep = op is torch.ops.aten.addmm.default and ctx.op_output.shape[-1] == 32  # type: ignore[attr-defined]
    policy = torch.utils.checkpoint.CheckpointPolicy
    return policy.MUST_SAVE if keep else policy.PREFER_RECOMPUTE


SELECTIONS = [
    [torch.ops.aten.addmm.default],
    lambda ctx, op, *args, **kwargs: op is torch.ops.aten.addmm.default,
    chosen,
]


@pytest.mark.parametrize("selection", SELECTIONS, ids=["list", "boolean", "by shape"])
def test_pytorchs_selective_contexts(selection: object) -> None:
    if selection is SELECTIONS[1]:
        policies = torch.utils.checkpoint.CheckpointPolicy
        boolean = selection

        def selection(*args: object, **kwargs: object) -> object:
            keep = boolean(*args, **kwargs)  # type: ignore[operator]
            return policies.MUST_SAVE if keep else policies.PREFER_RECOMPUTE

    def contexts() -> object:
        make = torch.utils.checkpoint.create_selective_checkpoint_contexts
        return make(selection)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8), nn.Tanh())
    x = torch.randn(4, 8)
    plain = torch.autograd.grad(model(x).sum(), list(model.parameters()))
    steps = []
    for options in ({}, {"context_fn": contexts}):
        calls: list[object] = []
        y = retape.torch.checkpoint(model, x, use_reentrant=False, **options)  # type: ignore[arg-type]
        with CountingMode(calls):
            found = torch.autograd.grad(y.sum(), list(model.parameters()))
        assert all(torch.equal(a, b) for a, b in zip(plain, found, strict=True))
        steps.append(calls.count(torch.ops.aten.addmm.default))
    assert steps == [2, 1 if selection is chosen else 0]


class CountingMode(TorchDispatchMode):
    def __init__(self, calls: list[object]) -> None:
        super().__init__()
        self.calls = calls

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # noqa: ANN001
        self.calls.append(func)
        return func(*args, **(kwargs or {}))


def test_matrix_products_are_kept_and_the_rest_is_not() -> None:
    w = torch.ones(4, 4, requires_grad=True)
    calls: list[object] = []
    h = retape.torch.checkpoint(
        lambda: torch.sin(torch.exp(w @ w) @ w), policy=retape.torch.matrix_products
    )
    with CountingMode(calls):
        h.sum().backward()
    # Only the backward's own products: two for each of the two.
    assert calls.count(torch.ops.aten.mm.default) == 4
    assert calls.count(torch.ops.aten.exp.default) == 1

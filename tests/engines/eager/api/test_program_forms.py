"""checkpoint and Checkpointed. For checkpoint_sequential see test_sequence."""

import itertools
from collections.abc import Callable

import pytest
import torch
import torch.utils.checkpoint
from torch import nn

import retape.torch
from tests.judges.torch.faces import Operators


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
        y = retape.torch.checkpoint(model, x, use_reentrant=False, **options)  # type: ignore[arg-type]
        with Operators() as run:
            found = torch.autograd.grad(y.sum(), list(model.parameters()))
        assert all(torch.equal(a, b) for a, b in zip(plain, found, strict=True))
        steps.append(run.calls.count(torch.ops.aten.addmm.default))
    assert steps == [2, 1 if selection is chosen else 0]


@torch.library.custom_op("retape_tests::fill", mutates_args=("into",))
def fill(into: torch.Tensor) -> None:
    """Another value at each call, and no result."""
    into.copy_(torch.full_like(into, 1 + next(FILLINGS) % 7))


FILLINGS = itertools.count()
ATEN, W = torch.ops.aten, torch.linspace(-0.1, 0.1, 32 * 32).reshape(32, 32)


def filled(write: Callable[[torch.Tensor], object]) -> torch.Tensor:
    """What an operator that overwrites its argument left there."""
    into = torch.linspace(0.5, 1.0, 64 * 32).reshape(64, 32)
    write(into)
    return into


USES: dict[object, Callable[[torch.Tensor], torch.Tensor]] = {
    ATEN.mm.default: lambda h: h @ W,
    ATEN.sin.default: torch.sin,
    ATEN.max.dim: lambda h: h.max(1, keepdim=True).values,
    ATEN._foreach_exp.default: lambda h: torch._foreach_exp([h])[0],
    ATEN.mul_.Tensor: lambda h: filled(lambda into: into.mul_(1.5)),
    ATEN.exp.out: lambda h: filled(lambda into: torch.exp(into, out=into)),
    ATEN._foreach_mul_.Scalar: lambda h: filled(
        lambda into: torch._foreach_mul_([into], 1.5)
    ),
    torch.ops.retape_tests.fill.default: lambda h: filled(fill),
}
"""Operators that give results, several, or a list, and that overwrite arguments."""

FORMS: dict[str, Callable[..., torch.Tensor]] = {
    "plain": lambda f, x, policy: f(x),
    "checkpoint": lambda f, x, policy: retape.torch.checkpoint(f, x, policy=policy),
    "recompute": lambda f, x, policy: retape.torch.recompute(
        memory=330_000, policy=policy
    )(f)(x),
}


@pytest.mark.parametrize("form", [*FORMS][1:])
@pytest.mark.parametrize("kept", USES, ids=str)
def test_what_a_policy_keeps_is_not_run_again(kept: object, form: str) -> None:
    def program(h: torch.Tensor) -> torch.Tensor:
        for _ in range(24):
            h = torch.atan(torch.tanh(h) * torch.cos(USES[kept](h)))
        return h.square().mean()

    def run(form: str, policy: object) -> tuple[torch.Tensor, int, int]:
        global FILLINGS
        FILLINGS = itertools.count()
        x = torch.linspace(-1, 1, 64 * 32).reshape(64, 32).requires_grad_()
        loss = FORMS[form](program, x, policy)
        with Operators() as seen:
            (found,) = torch.autograd.grad(loss, x)
        return found, seen.calls.count(kept), seen.calls.count(ATEN.tanh.default)

    plain, calls, _ = run("plain", None)
    products = kept is ATEN.mm.default
    found, again, others = run(
        form, retape.torch.matrix_products if products else [kept]
    )
    assert again == calls
    assert others > 0, "nothing was run again"
    assert torch.equal(found, plain)

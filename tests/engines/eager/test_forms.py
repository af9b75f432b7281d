"""checkpoint and Checkpointed. For checkpoint_sequential see test_sequence."""

import pytest
import torch
from torch import nn

import retape.torch
from retape._errors import PlanError, UnsupportedError


def stack(depth: int = 6) -> nn.Sequential:
    torch.manual_seed(0)
    blocks = [
        nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.2))
        for _ in range(depth)
    ]
    return nn.Sequential(*blocks)


def outcome(model: nn.Module, forward: object) -> list[torch.Tensor]:
    torch.manual_seed(1)
    loss = forward(torch.ones(4, 8).cumsum(0))  # type: ignore[operator]
    loss.square().sum().backward()
    grads = [p.grad.clone() for p in model.parameters()]  # type: ignore[union-attr]
    return [*grads, *(b.clone() for b in model.buffers()), torch.get_rng_state()]


def assert_same(one: list[torch.Tensor], other: list[torch.Tensor]) -> None:
    assert len(one) == len(other)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_regions_give_plain_gradients_and_update_buffers_once() -> None:
    plain, regions = stack(), stack()
    expected = outcome(plain, plain)

    def forward(x: torch.Tensor) -> torch.Tensor:
        for block in regions:
            x = retape.torch.checkpoint(block, x, use_reentrant=False, debug=True)
        return x

    assert_same(expected, outcome(regions, forward))


def test_a_wrapped_module_keeps_its_names() -> None:
    plain, wrapped = stack(), stack()
    for k in range(6):
        wrapped[k] = retape.torch.Checkpointed(wrapped[k])
    assert list(wrapped.state_dict()) == list(plain.state_dict())
    names = [name for name, _ in plain.named_parameters()]
    assert [name for name, _ in wrapped.named_parameters()] == names
    state = {key: value + 1 for key, value in plain.state_dict().items()}
    wrapped.load_state_dict(state)
    plain.load_state_dict(state)
    assert wrapped.eval()[0].module.training is False
    assert wrapped.train()[0].module.training is True
    assert wrapped.double()[0].module[0].weight.dtype is torch.float64
    wrapped.float()
    assert_same(outcome(plain, plain), outcome(wrapped, wrapped))


def count_matmuls(policy: object) -> int:
    w = torch.ones(4, 4, requires_grad=True)
    run = retape.torch.recompute(snapshots=1, stage=64, policy=policy)  # type: ignore[arg-type]
    with run:
        h = w
        for _ in range(100):
            h = torch.sin(h @ w)
    h.sum().backward()
    return run.report.recomputed


def test_a_policy_keeps_what_it_names() -> None:
    everything = count_matmuls(None)
    kept = count_matmuls({torch.ops.aten.mm})
    assert kept < everything
    assert kept == count_matmuls(lambda op: op is torch.ops.aten.mm.default)


def test_what_cannot_be_is_refused() -> None:
    x = torch.ones(2)
    with pytest.raises(UnsupportedError, match="Name the operators to keep"):
        retape.torch.checkpoint(torch.sin, x, context_fn=lambda: None)
    with pytest.raises(PlanError, match="determinism_check='always'"):
        retape.torch.checkpoint(torch.sin, x, determinism_check="always")
    with pytest.raises(PlanError, match="exactly one"):
        retape.torch.recompute()
    with pytest.raises(PlanError, match="`snapshots=0`"):
        retape.torch.recompute(snapshots=0)

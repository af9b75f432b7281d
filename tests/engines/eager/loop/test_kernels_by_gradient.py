"""Functions that round in another way where no graph is made."""

import contextlib

import pytest
import torch

from retape import UnsupportedError
from retape import torch as retape_torch


def gradients(frozen: bool, under: contextlib.AbstractContextManager[object]) -> list:
    torch.manual_seed(0)
    first, model = torch.nn.Linear(6, 6), torch.nn.LSTM(6, 7, num_layers=2)
    model.requires_grad_(not frozen)
    x = torch.randn(11, 3, 6)
    with under:
        loss = model(torch.tanh(first(x)))[0].square().sum()
    loss.backward()
    found = [p.grad for p in (*first.parameters(), *model.parameters())]
    return [loss.detach(), *(g for g in found if g is not None)]


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("snapshots", [1, 3])
def test_an_lstm_in_a_loop_has_the_bits_of_the_plain_one(
    frozen: bool, snapshots: int
) -> None:
    under = retape_torch.recompute(mode="loop", snapshots=snapshots, stage=1)
    ours = gradients(frozen, under)
    plain = gradients(frozen, contextlib.nullcontext())
    assert len(ours) == len(plain) >= 3
    assert all(map(torch.equal, ours, plain))


SPECTRA = {
    "svdvals": torch.linalg.svdvals,
    "eigvalsh": lambda a: torch.linalg.eigvalsh(a @ a.mT),
    "norm": lambda a: torch.linalg.norm(a, "nuc") + torch.norm(a, p="nuc"),
    "matrix_norm": lambda a: torch.linalg.matrix_norm(a, 2) + torch.linalg.cond(a),
}


@pytest.mark.parametrize("name", SPECTRA)
def test_spectra_in_a_loop_have_the_bits_of_the_plain_ones(
    name: str, accelerated: bool
) -> None:
    def found(under: contextlib.AbstractContextManager[object]) -> list[torch.Tensor]:
        torch.manual_seed(0)
        w = torch.randn(24, 24, requires_grad=True)
        with under:
            h = w
            for _ in range(4):
                h = torch.tanh(0.1 * h @ w + 0.01 * SPECTRA[name](h).sum().log1p())
            loss = h.square().sum()
        loss.backward()
        assert w.grad is not None
        return [loss.detach(), w.grad]

    plain = found(contextlib.nullcontext())
    under = retape_torch.recompute(mode="loop", snapshots=1, stage=1)
    assert all(map(torch.equal, plain, found(under)))


def statistics(x: torch.Tensor) -> torch.Tensor:
    mean, scale = torch.zeros(4), torch.ones(4)
    return torch.native_batch_norm(x, None, None, mean, scale, True, 0.1, 1e-5)[0]


def observed(x: torch.Tensor) -> torch.Tensor:
    on, none = torch.ones(1, dtype=torch.long), torch.zeros(1, dtype=torch.int32)
    low, high, scale = torch.zeros(1), torch.ones(1), torch.ones(1)
    return torch.fused_moving_avg_obs_fake_quant(
        x, on, on, low, high, scale, none, 0.1, 0, 255, -1
    )


def chosen(x: torch.Tensor) -> torch.Tensor:
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)


def sparse(x: torch.Tensor) -> torch.Tensor:
    return torch.eye(4).to_sparse() @ x


def dual(x: torch.Tensor) -> torch.Tensor:
    with torch.autograd.forward_ad.dual_level():
        return torch.autograd.forward_ad.make_dual(x, x)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("call", [statistics, observed, chosen, sparse, dual])
def test_what_a_loop_cannot_run_again_is_refused(
    call: object, accelerated: bool
) -> None:
    w = torch.eye(4).requires_grad_()
    under = retape_torch.recompute(mode="loop", memory="1MB")
    with pytest.raises(UnsupportedError, match="mode='loop'"), under:
        call(w @ w)  # type: ignore[operator]


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_a_loop_is_reversed_and_entered_outside_of_transforms() -> None:
    w = torch.eye(4).requires_grad_()
    with retape_torch.recompute(mode="loop", memory="1MB"):
        h = torch.tanh(w @ w)
    with pytest.raises(UnsupportedError, match="inside of a transform"):
        torch.func.vmap(lambda g: torch.autograd.grad(h, w, g)[0])(torch.ones(2, 4, 4))
    with (
        torch.autograd.forward_ad.dual_level(),
        pytest.raises(UnsupportedError, match="dual_level"),
        retape_torch.recompute(mode="loop", memory="1MB"),
    ):
        pass

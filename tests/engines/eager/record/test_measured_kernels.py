"""What kernels work in is measured by an allocator that tells; a CPU's does not.

Here one that tells is put in its place: each operator is tried, and its backward, and
neither gradients nor generators may show it.
"""

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import Tensor, nn  # noqa: E402

import retape.torch  # noqa: E402
from retape import BudgetError  # noqa: E402
from tests.engines.eager.support.seams import TellingAllocator, forget  # noqa: E402

A_MEGABYTE = 10**6


def dropout_and_norms() -> tuple[Callable[[], Tensor], list[Tensor]]:
    net = nn.Sequential(
        nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.3), nn.LayerNorm(32),
        nn.Linear(32, 16), nn.Softmax(-1),
    )  # fmt: skip
    x = torch.randn(8, 16)
    return lambda: net(net(x)).square().mean(), [*net.parameters()]


def images() -> tuple[Callable[[], Tensor], list[Tensor]]:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True),
        nn.MaxPool2d(2), nn.ConvTranspose2d(8, 3, 2, stride=2),
    )  # fmt: skip
    x = torch.randn(2, 3, 8, 8)
    return lambda: net(net(x)).square().mean(), [*net.parameters()]


def words() -> tuple[Callable[[], Tensor], list[Tensor]]:
    table, head = nn.Embedding(20, 8), nn.Linear(8, 20)
    text = torch.arange(12) % 20

    def loss() -> Tensor:
        x = F.rrelu(table(text), training=True)
        x = torch.cat([x[:6], torch.fft.irfft(torch.fft.rfft(x[6:]), n=8)])
        return F.cross_entropy(head(x), text)

    return loss, [*table.parameters(), *head.parameters()]


def attention() -> tuple[Callable[[], Tensor], list[Tensor]]:
    q, k, v = (torch.randn(2, 2, 6, 4, requires_grad=True) for _ in range(3))

    def loss() -> Tensor:
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=0.2)
        return (mixed * torch.rand_like(mixed)).sum()

    return loss, [q, k, v]


PROGRAMS = dropout_and_norms, images, words, attention


@pytest.fixture
def allocator(monkeypatch: pytest.MonkeyPatch) -> TellingAllocator:
    return TellingAllocator(monkeypatch)


def outcome(loss: Callable[[], Tensor], parameters: list[Tensor]) -> list[Tensor]:
    torch.manual_seed(1)
    value = loss()
    found = torch.autograd.grad(value, parameters)
    return [value.detach(), *found, torch.get_rng_state()]


@pytest.mark.parametrize("make", PROGRAMS)
def test_gradients_and_generators_do_not_show_that_kernels_were_measured(
    make: Callable[[], tuple[Callable[[], Tensor], list[Tensor]]],
    allocator: TellingAllocator,
) -> None:
    torch.manual_seed(0)
    loss, parameters = make()
    expected = outcome(loss, parameters)
    run = retape.torch.recompute(memory="1GB")
    found = outcome(run(loss), parameters)
    assert all(map(torch.equal, found, expected))
    assert sum(allocator.tried) > 3


def test_what_is_measured_is_part_of_the_least_budget(
    allocator: TellingAllocator,
) -> None:
    torch.manual_seed(0)
    loss, _ = dropout_and_norms()
    least = []
    for allocator.nbytes in (0, A_MEGABYTE):
        allocator.forget()
        forget()
        with pytest.raises(BudgetError) as refused:
            retape.torch.recompute(memory=1)(loss)()
        assert refused.value.least is not None
        least.append(refused.value.least)
    assert least[1] - least[0] >= A_MEGABYTE


def test_an_estimate_measures_nothing(allocator: TellingAllocator) -> None:
    retape.torch.estimate(dropout_and_norms()[0])
    assert not allocator.tried

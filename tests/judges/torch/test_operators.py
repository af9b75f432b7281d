"""Each operator in the least budget that is named for it: exact, and within it."""

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import retape.torch
from retape import BudgetError
from retape.torch import recompute
from tests.judges.torch.allocator import peak_bytes

SIDE = 64
Case = tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]
SQUARE, ROW, COLUMN = (SIDE, SIDE), (SIDE,), (SIDE, 1)
IMAGE, HEADS, BATCH = (4, 8, 16, 16), (2, 4, 32, 16), (4, 32, 32)


def index() -> Tensor:
    return torch.arange(SIDE) * 7 % SIDE


def table() -> Tensor:
    return torch.arange(SIDE * SIDE).view(SIDE, SIDE) * 7 % SIDE


def of(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return lambda *inputs: function(*inputs, **options)


def in_place(name: str, *args: Any) -> Callable[..., Any]:
    return lambda x: getattr(x.clone(), name)(*args)


def part_in_place(x: Tensor) -> Tensor:
    y = x.clone()
    y[: SIDE // 2].mul_(y[SIDE // 2 :].clone())
    return y


def waves(x: Tensor, filters: Tensor) -> Tensor:
    """Layers whose kernels work in a copy, also when they run again."""
    for _ in range(8):
        parts = torch.fft.rfft(x, dim=1) * torch.complex(filters, filters)
        x = x + torch.fft.irfft(parts, n=x.shape[1], dim=1).tanh()
    return x


ONE = (
    "abs", "acos", "asin", "asinh", "atan", "cos", "cosh", "erf", "erfc", "exp",
    "expm1", "log", "log1p", "log2", "reciprocal", "rsqrt", "sigmoid", "sin", "sinc",
    "sinh", "sqrt", "square", "tan", "tanh", "relu", "logcumsumexp", "cumsum",
    "cumprod", "softmax", "log_softmax", "logsumexp", "sort", "cummax", "var", "std",
    "var_mean", "std_mean", "mean", "sum", "prod", "amax", "amin", "max", "min",
    "median", "nansum", "norm", "fft.fft", "fft.rfft", "tril", "clone",
    "linalg.inv", "linalg.eigh", "linalg.cholesky",
)  # fmt: skip
WITH_DIMENSION = {
    "logcumsumexp", "cumsum", "cumprod", "softmax", "log_softmax", "logsumexp", "sort",
    "cummax",
}  # fmt: skip
SYMMETRIC = {
    "linalg.inv", "linalg.eigh", "linalg.cholesky", "linalg.matrix_sqrth"
}  # fmt: skip
ACTIVATIONS = (
    "gelu", "silu", "softplus", "elu", "leaky_relu", "hardswish", "mish", "hardtanh",
    "hardsigmoid", "selu", "celu", "logsigmoid", "softsign", "tanhshrink", "glu",
    "dropout", "normalize",
)  # fmt: skip
TWO = (
    "add", "sub", "mul", "div", "pow", "atan2", "maximum", "hypot", "logaddexp",
    "xlogy", "fmod", "copysign", "lerp",
)  # fmt: skip


def named(name: str) -> Callable[..., Any]:
    function: Any = torch
    for part in name.split("."):
        function = getattr(function, part)
    if name in WITH_DIMENSION:
        return of(function, dim=1)
    if name in ("acos", "asin"):
        return lambda x: function(x * 0.5)
    if name in SYMMETRIC:
        return lambda x: function(x @ x.t() + SIDE * torch.eye(SIDE))
    return function


def two(name: str) -> Callable[..., Any]:
    if name == "lerp":
        return lambda a, b: torch.lerp(a, b, b)
    return getattr(torch, name)


CASES: dict[str, Case] = {
    **{name: (named(name), (SQUARE,)) for name in ONE},
    **{name: (getattr(F, name), (SQUARE,)) for name in ACTIVATIONS},
    **{name: (two(name), (SQUARE, SQUARE)) for name in TWO},
    **{f"{name} of a row": (two(name), (SQUARE, ROW)) for name in TWO[::2]},
    **{f"{name} of vectors": (two(name), (COLUMN, ROW)) for name in TWO[1::2]},
    "cube": (lambda x: x**3, (SQUARE,)),
    "a square of itself": (lambda x: x * x, (SQUARE,)),
    "neighbours": (lambda x: x[1:] - x[:-1], (SQUARE,)),
    "mask": (lambda x: x * (x > 1), (SQUARE,)),
    "division by a number": (lambda x: x / 3, (SQUARE,)),
    "division of a number": (lambda x: 3 / x, (SQUARE,)),
    "clamp": (of(torch.clamp, min=0.7, max=1.2), (SQUARE,)),
    "where": (lambda x, y: torch.where(x > 1, x, y), (SQUARE, SQUARE)),
    "maximum norm": (of(torch.linalg.vector_norm, ord=float("inf")), (SQUARE,)),
    "variance of rows": (of(torch.var, dim=1), (SQUARE,)),
    "topk": (of(torch.topk, k=9), (SQUARE,)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (SIDE,), w, b), (SQUARE, ROW, ROW)),
    "rms_norm": (lambda x, w: F.rms_norm(x, (SIDE,), w), (SQUARE, ROW)),
    "batch_norm": (of(F.batch_norm, running_mean=None, running_var=None,
                      training=True), (IMAGE,)),
    "group_norm": (of(F.group_norm, num_groups=4), (IMAGE,)),
    "cross_entropy": (lambda x: F.cross_entropy(x, index()), (SQUARE,)),
    "smoothed": (lambda x: F.cross_entropy(x, index(), label_smoothing=0.1), (SQUARE,)),
    "mse_loss": (F.mse_loss, (SQUARE, SQUARE)),
    "huber_loss": (F.huber_loss, (SQUARE, SQUARE)),
    "mm": (torch.mm, (SQUARE, SQUARE)),
    "matmul": (torch.matmul, (BATCH, BATCH[1:])),
    "matmul of stacks": (torch.matmul, ((4, 1, 16, 16), (8, 16, 16))),
    "einsum": (lambda a, b: torch.einsum("bij,bkj->bik", a, b), (BATCH, BATCH)),
    "linear": (F.linear, ((4, 16, SIDE), SQUARE, ROW)),
    "bilinear": (F.bilinear, ((SIDE, 16), (SIDE, 16), (16, 16, 16))),
    "cdist": (torch.cdist, (SQUARE, SQUARE)),
    "attention": (F.scaled_dot_product_attention, (HEADS,) * 3),
    "self-attention": (lambda x: F.scaled_dot_product_attention(x, x, x), (HEADS,)),
    "causal": (of(F.scaled_dot_product_attention, is_causal=True), (HEADS,) * 3),
    "dropping": (of(F.scaled_dot_product_attention, dropout_p=0.2), (HEADS,) * 3),
    "conv1d": (F.conv1d, ((4, 8, 256), (8, 8, 3))),
    "conv2d": (of(F.conv2d, padding=1), (IMAGE, (8, 8, 3, 3))),
    "strided": (of(F.conv2d, stride=2), ((16, 32, 16, 16), (32, 32, 3, 3))),
    "one image": (F.conv2d, ((1, 8, 16, 16), (8, 8, 3, 3))),
    "depthwise": (of(F.conv2d, groups=8), (IMAGE, (8, 1, 3, 3))),
    "beyond the image": (
        of(F.conv2d, padding=1), ((4, 32, 2, 2), (32, 32, 3, 3))
    ),
    "dilated": (of(F.conv1d, dilation=4), ((4, 32, 64), (32, 32, 3))),
    "conv3d": (F.conv3d, ((2, 4, 8, 8, 8), (4, 4, 3, 3, 3))),
    "transposed": (of(F.conv_transpose2d, stride=2), (IMAGE, (8, 8, 3, 3))),
    "max_pool2d": (of(F.max_pool2d, kernel_size=2), (IMAGE,)),
    "avg_pool2d": (of(F.avg_pool2d, kernel_size=2), (IMAGE,)),
    "adaptive": (of(F.adaptive_avg_pool2d, output_size=4), (IMAGE,)),
    "interpolate": (of(F.interpolate, scale_factor=2, mode="bilinear"), (IMAGE,)),
    "pad": (of(F.pad, pad=(1, 1, 1, 1), mode="reflect"), (IMAGE,)),
    "unfold": (of(F.unfold, kernel_size=3), (IMAGE,)),
    "embedding": (lambda w: F.embedding(table(), w), (SQUARE,)),
    "index": (lambda x: x[index()], (SQUARE,)),
    "gather": (lambda x: x.gather(1, table()), (SQUARE,)),
    "scatter": (lambda x, y: x.scatter(1, table(), y), (SQUARE, SQUARE)),
    "scatter_add": (lambda x, y: x.scatter_add(1, table(), y), (SQUARE, SQUARE)),
    "largest of": (
        lambda x, y: x.scatter_reduce(1, table(), y, "amax"), (SQUARE, SQUARE)
    ),
    "cat": (lambda x, y: torch.cat([x, y]), (SQUARE, SQUARE)),
    "parts": (lambda x: [each.exp() for each in x.chunk(4, 1)], (SQUARE,)),
    "part": (lambda x: x[3:7].exp(), (SQUARE,)),
    "repeat": (of(torch.Tensor.repeat, repeats=(2, 2)), (SQUARE,)),
    "mul_": (in_place("mul_", 2), (SQUARE,)),
    "sigmoid_": (in_place("sigmoid_"), (SQUARE,)),
    "part in place": (part_in_place, (SQUARE,)),
    "waves": (waves, ((8, 64, 32), (33, 32))),
    "complex": (lambda x, y: torch.complex(x, y).exp().abs(), (SQUARE, SQUARE)),
    "lstm": (lambda x: torch.nn.LSTMCell(SIDE, SIDE)(x)[0], (SQUARE,)),
    "wide": (lambda x: x.sin().cos().exp().tanh().sigmoid().sin().exp(), (SQUARE,)),
    "unknown": (lambda x: torch.special.entr(x), (SQUARE,)),
}  # fmt: skip

if hasattr(torch.linalg, "polar"):  # PyTorch 2.14
    CASES |= {
        "polar": (torch.linalg.polar, (SQUARE,)),
        "square root of a matrix": (named("linalg.matrix_sqrth"), (SQUARE,)),
    }


def results(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    else:
        for each in value:
            yield from results(each)


def loss_of(value: Any) -> Tensor:
    """A sum that gives each result a cotangent of its own, and lets it go."""
    total = torch.zeros(())
    for each in results(value):
        if each.requires_grad:
            real = torch.view_as_real(each) if each.is_complex() else each
            total = total + (real * 0.7).sum()
    return total


def inputs_of(shapes: tuple[tuple[int, ...], ...]) -> list[Tensor]:
    torch.manual_seed(0)
    inputs = [torch.rand(shape).add(0.5).requires_grad_() for shape in shapes]
    for each in inputs:
        each.grad = torch.zeros_like(each)
    return inputs


class Twice:
    """An operator in the middle of a program that has to run it again."""

    def __init__(self, name: str) -> None:
        self.function, shapes = CASES[name]
        self.inputs = inputs_of(shapes)

    def loss(self) -> Tensor:
        return loss_of(self.function(*(each * 1.01 for each in self.inputs)))

    def __call__(self, under: Any) -> list[Tensor]:
        torch.manual_seed(0)
        for each in self.inputs:
            each.grad.zero_()  # type: ignore[union-attr]
        with under:
            loss = self.loss()
        loss.backward()
        return [loss.detach(), *(each.grad.clone() for each in self.inputs)]  # type: ignore[union-attr]

    def least(self) -> int:
        with pytest.raises(BudgetError) as refused:
            self(recompute(memory=1))
        assert refused.value.least is not None
        return refused.value.least


# Bytes that the allocator counts beyond the least: a number for each query.
BEYOND = {"causal": 2048}


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore")
def test_the_least_that_is_named_is_enough_for_any_operator(name: str) -> None:
    """By the allocator, with what the kernels of the backward take inside."""
    program = Twice(name)
    plain, least = program(contextlib.nullcontext()), program.least()
    found: list[Tensor] = []
    peak = peak_bytes(lambda: found.extend(program(recompute(memory=least))))
    assert all(map(torch.equal, plain, found))
    assert peak <= least + BEYOND.get(name, 0)
    retape.torch.accelerate()
    try:  # above a megabyte the record is counted, whose objects are others
        assert program.least() == pytest.approx(least, rel=0.0 if least < 1e6 else 2e-3)
    finally:
        retape.torch.accelerate(False)


@pytest.mark.slow("silu", "layer_norm")
@pytest.mark.parametrize("name", ["silu", "mm", "layer_norm"])
def test_no_more_is_asked_for_than_is_taken(name: str) -> None:
    program = Twice(name)
    least = program.least()
    gc.collect()  # what other tests have left is not let go meanwhile
    peak = peak_bytes(lambda: program(recompute(memory=least)))
    assert least <= 1.75 * peak


def test_the_measure_sees_a_budget_that_is_broken() -> None:
    program = Twice("wide")
    least = program.least()
    assert peak_bytes(lambda: program(recompute(memory="1GB"))) > least

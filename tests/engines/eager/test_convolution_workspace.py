"""What convolutions take inside, as the allocator counts it, and what is counted."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import retape.torch
from retape.engines.eager._convolution_workspace import (
    has_direct_kernels,
    workspace_bytes,
)
from tests.engines.eager.support.allocator import peak_bytes

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
# Image, weight, and what is not the default.
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, int]]] = {
    "plain": ((4, 16, 24, 24), (16, 16, 3, 3), {"padding": 1}),
    "kernel beyond the image": ((2, 64, 2, 2), (64, 64, 3, 3), {"padding": 1}),
    "strided beyond": ((2, 64, 2, 2), (64, 64, 3, 3), {"padding": 1, "stride": 2}),
    "dilated": ((4, 32, 24, 24), (32, 32, 3, 3), {"padding": 4, "dilation": 4}),
    "far": ((4, 32, 24, 24), (32, 32, 3, 3), {"padding": 8, "dilation": 8}),
    "wavenet": ((4, 32, 256), (32, 32, 3), {"padding": 8, "dilation": 8}),
    "wide": ((4, 32, 64), (32, 32, 9), {"padding": 4}),
    "wider": ((4, 32, 64), (32, 32, 16), {}),
    "wide image": ((4, 32, 12, 12), (32, 32, 11, 11), {"padding": 5}),
    "patches": ((4, 3, 32, 32), (64, 3, 16, 16), {"stride": 16}),
    "volume": ((4, 32, 4, 4, 4), (32, 32, 3, 3, 3), {"padding": 1}),
    "volume, strided": ((8, 16, 8, 8, 8), (32, 16, 3, 3, 3), {"stride": 2}),
    "grouped": ((8, 64, 2, 2), (64, 16, 3, 3), {"padding": 1, "groups": 4}),
}
# Found with every processor.
EVERYWHERE: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, int]]] = {
    "one each": ((4, 96, 4, 4), (96, 1, 7, 7), {"padding": 3, "groups": 96}),
    "one each, 3 by 3": ((4, 96, 8, 8), (96, 1, 3, 3), {"padding": 1, "groups": 96}),
    "two of one": ((4, 96, 2, 2), (192, 1, 3, 3), {"padding": 1, "groups": 96}),
    "gathered": ((1, 96, 56, 56), (96, 96, 1, 1), {"stride": 2}),
    "first": ((4, 3, 64, 64), (64, 3, 7, 7), {"stride": 2, "padding": 3}),
    "patches of 16": ((4, 3, 32, 32), (64, 3, 16, 16), {"stride": 16}),
    "beyond": ((4, 96, 4, 4), (96, 96, 3, 3), {"padding": 4, "dilation": 4}),
    "channels": ((4, 256, 4, 4), (256, 256, 3, 3), {"padding": 1}),
    "downsampled": ((4, 96, 8, 8), (192, 96, 2, 2), {"stride": 2}),
    "groups of few": ((4, 64, 16, 16), (64, 4, 3, 3), {"padding": 1, "groups": 16}),
}
CASES |= EVERYWHERE
# Of the others nothing is known where there are more direct kernels.
SEEN = ["plain", *EVERYWHERE] if has_direct_kernels() else list(CASES)
LAST = ["one each", "one each, 3 by 3", "channels", "downsampled", "groups of few"]


@pytest.fixture(params=[1, 4])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def arguments(name: str, last: bool = False) -> tuple[list[Any], torch.Tensor]:
    """Those of `aten::convolution`, and its result; with channels last or not."""
    image, weight, options = CASES[name]
    torch.manual_seed(0)
    x, w, n = torch.randn(image), torch.randn(weight), len(image) - 2
    x = x.to(memory_format=torch.channels_last) if last else x
    values = {"stride": 1, "padding": 0, "dilation": 1, **options}
    stride, padding, dilation = (
        [values[k]] * n for k in ("stride", "padding", "dilation")
    )
    args = [x, w, None, stride, padding, dilation, False, [0] * n]
    args.append(options.get("groups", 1))
    return args, CONVOLUTIONS[n](x, w, None, **options)  # type: ignore[operator]


WAYS = [*((name, False) for name in SEEN), *((name, True) for name in LAST)]


@pytest.mark.parametrize(("name", "last"), WAYS)
def test_no_convolution_takes_more_than_is_counted(
    name: str, last: bool, threads: int
) -> None:
    args, made = arguments(name, last)
    x, w, *_ = args
    found = workspace_bytes(args)
    copies = x.nbytes + w.nbytes + made.nbytes
    forward = peak_bytes(lambda: torch.ops.aten.convolution(*args))
    backward = torch.ops.aten.convolution_backward
    rest = (made, x, w, None, *args[3:], [True, True, False])
    backward(*rest)
    reverse = peak_bytes(lambda: backward(*rest))
    slack = 4096  # alignment
    assert forward - made.nbytes <= copies + found.forward + slack
    # As the backward is counted: the image is copied once more.
    counted = copies + sum(found) + x.nbytes + slack
    assert reverse - x.nbytes - w.nbytes <= counted


@pytest.mark.parametrize(
    "name",
    [each for each in ("plain", "kernel beyond the image", "volume") if each in SEEN],
)
def test_what_is_counted_is_about_what_is_taken(name: str, threads: int) -> None:
    args, made = arguments(name)
    x, w, *_ = args
    found = workspace_bytes(args)
    backward = torch.ops.aten.convolution_backward
    rest = (made, x, w, None, *args[3:], [True, True, False])
    backward(*rest)
    reverse = peak_bytes(lambda: backward(*rest)) - x.nbytes - w.nbytes
    copies = x.nbytes + w.nbytes + made.nbytes
    assert copies + sum(found) <= 1.7 * reverse


def test_weights_of_one_channel_each_are_blown_up_where_channels_lie_last() -> None:
    args, _ = arguments("one each", last=True)
    weights = args[1].nbytes
    blocks = 16 * 16 if has_direct_kernels() else 8 * 8
    assert sum(workspace_bytes(args)) > 0.9 * blocks * weights
    usual, _ = arguments("one each, 3 by 3", last=True)
    assert sum(workspace_bytes(usual)) < blocks * usual[1].nbytes


def test_room_is_made_before_the_first_convolution_that_is_wider_than_all() -> None:
    # Its weights, which are copied, take more than all that had been run until then.
    torch.manual_seed(0)
    wide = [torch.nn.AdaptiveAvgPool2d(2), torch.nn.Conv2d(32, 1024, 5, padding=2)]
    model = torch.nn.Sequential(*(torch.nn.Tanh() for _ in range(80)), *wide)
    x = torch.randn(4, 32, 16, 16, requires_grad=True)
    x.grad = torch.zeros_like(x)
    for each in model.parameters():
        each.grad = torch.zeros_like(each)
    memory = 8_500_000

    def train() -> None:
        with retape.torch.recompute(memory=memory):
            loss = model(x).square().sum()
        loss.backward()

    assert peak_bytes(train) <= memory

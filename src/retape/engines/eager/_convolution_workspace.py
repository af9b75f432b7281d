"""Bytes that a convolution takes inside its kernels, beyond copies of its operands.

The kernels are chosen by shapes. Direct ones copy what they read and make into a layout
of their own and no more. Where there is none, each thread writes the image out as a
matrix with a row for each number of the result, and its gradients of the weight come in
four tensors as large as the weight (measured with PyTorch 2.13 and oneDNN 3: exact to
a percent). With AVX-512 there is a direct kernel for nearly all shapes, and the copies
were found to be enough; without it there is none for kernels that are larger than the
image, dilated, very wide, or of three dimensions.
"""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import torch

# Images so small, one at a time or in three dimensions, are not convolved as they are:
# a matrix is made with a row for each number of the result. Others are laid out in
# blocks of channels.
_SMALL_IMAGE = 20_480
_BLOCK = 16
# Without AVX-512: the widest kernels and paddings of the direct kernels forward, the
# widest kernels backward, and the most of a matrix that a thread makes at once forward.
_WIDEST, _MOST_PADDING, _WIDEST_BACK, _MATRIX = 8, 3, 13, 512 * 1024
_WEIGHTS_PER_THREAD = 4


class Workspace(NamedTuple):
    """Bytes beyond copies of operands and result: forward, and more on the way back."""

    forward: int
    reverse: int


def workspace_bytes(args: Sequence[Any]) -> Workspace:
    """The workspace of a convolution; that of other kernels that copy is none.

    Args:
        args: The positional arguments of `aten::convolution`, an image and a weight
            first.

    Examples:
        >>> workspace_bytes(())
        Workspace(forward=0, reverse=0)
    """
    if len(args) != 9 or not isinstance(args[1], torch.Tensor):
        return Workspace(0, 0)
    image, weight, itemsize = args[0].shape, args[1].shape, args[0].itemsize
    padded = _padding_bytes(args, image, weight) * itemsize
    if args[0].device.type not in ("cpu", "meta") or args[6] or has_direct_kernels():
        return Workspace(padded, 0)
    matrix, weights, copies = _sizes(args, image, weight, itemsize)
    threads = torch.get_num_threads()
    forward = reverse = 0
    if _is_indirect_forward(args, weight):
        forward = threads * min(matrix, _MATRIX)
    if _is_indirect_backward(args, image, weight):
        reverse = threads * (matrix + _WEIGHTS_PER_THREAD * weights)
    forward = max(padded, forward - copies)
    return Workspace(forward, max(0, reverse - copies - forward))


def has_direct_kernels() -> bool:
    """Tell whether this processor's convolutions are direct for nearly all shapes."""
    return torch.backends.cpu.get_cpu_capability() == "AVX512"


def _padding_bytes(
    args: Sequence[Any], image: Sequence[int], weight: Sequence[int]
) -> int:
    """Numbers that fill the last blocks of channels, or a matrix of a small image."""
    transposed, groups, numbers = args[6], args[8], prod(image)
    padded = -image[1] % _BLOCK * (numbers // max(1, image[1]))
    made = numbers // max(1, image[1]) * weight[1 if transposed else 0]
    padded += -weight[0] % _BLOCK * (numbers // max(1, image[1]))
    if transposed:  # about: its result is as large as its strides make it
        made *= prod(args[3]) if len(args[3]) == len(image) - 2 else args[3][0] ** 2
        padded += 2 * made
    small = numbers // max(1, image[0]) <= _SMALL_IMAGE
    if small and groups == 1 and (image[0] == 1 or len(image) == 5):
        padded += prod(image[2:]) * prod(weight[1:])
    return padded


def _sizes(
    args: Sequence[Any], image: Sequence[int], weight: Sequence[int], itemsize: int
) -> tuple[int, int, int]:
    """Bytes of one image as a matrix, of the weight, and of all that is copied.

    A volume is written out slice by slice.
    """
    dimensions = range(len(image) - 2)
    places = prod(_places(args, image, weight, k) for k in dimensions)
    weights = prod(weight) * itemsize
    made = image[0] * weight[0] * places * itemsize
    slices = _places(args, image, weight, 0) if len(image) == 5 else 1
    matrix = places // slices * prod(weight[1:]) * itemsize
    return matrix, weights, prod(image) * itemsize + weights + made


def _places(
    args: Sequence[Any], image: Sequence[int], weight: Sequence[int], k: int
) -> int:
    """The length of the result in a dimension."""
    reach = _of(args[5], k) * (weight[2 + k] - 1) + 1
    return max(1, (image[2 + k] + 2 * _of(args[4], k) - reach) // _of(args[3], k) + 1)


def _of(values: Sequence[int], k: int) -> int:
    """Of a stride, padding or dilation, that of a dimension; one may stand for all."""
    return values[k] if k < len(values) else values[0]


def _is_indirect_forward(args: Sequence[Any], weight: Sequence[int]) -> bool:
    wide = any(size > _WIDEST for size in weight[2:])
    return wide or any(padding > _MOST_PADDING for padding in args[4])


def _is_indirect_backward(
    args: Sequence[Any], image: Sequence[int], weight: Sequence[int]
) -> bool:
    if prod(weight[2:]) == 1:
        return len(image) == 5
    larger = any(k > n for k, n in zip(weight[2:], image[2:], strict=True))
    wide = any(size > _WIDEST_BACK for size in weight[2:])
    dilated = any(each > 1 for each in args[5])
    return len(image) == 5 or larger or wide or dilated

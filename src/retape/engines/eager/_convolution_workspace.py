"""Bytes that a convolution takes inside its kernels, beyond copies of its operands.

The kernels are chosen by shapes. Direct ones copy what they read and make into a layout
of their own and no more. Where there is none, each thread writes the image out as a
matrix with a row for each number of the result, and its gradients of the weight come in
four tensors as large as the weight (measured with PyTorch 2.13 and oneDNN 3: exact to
a percent). Backward there is none for very wide kernels, and for kernels of one channel
each beyond 3 by 3. Without AVX-512 there is none either for kernels that are larger
than the image, dilated, or of three dimensions.

Where channels lie last, only weights are copied, but in blocks of 8 or 16 channels by
as many: backward, weights of one channel each take 64 or 256 times their bytes.
"""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch._prims_common import suggest_memory_format

# Images so small, one at a time or in three dimensions, are not convolved as they are:
# a matrix is made with a row for each number of the result. Others are laid out in
# blocks of channels.
_SMALL_IMAGE = 20_480
_BLOCK = 16
# Without AVX-512: the widest kernels and paddings of the direct kernels forward, and
# the most of a matrix that a thread makes at once forward.
_WIDEST, _MOST_PADDING, _MATRIX = 8, 3, 512 * 1024
# The widest kernels of the direct kernels backward; of those of one channel each.
_WIDEST_BACK, _WIDEST_OF_ONE = 13, 3
_WEIGHTS_PER_THREAD = 4
# Where channels lie last: what is kept for all threads, and for each.
_TILES, _TILE = 12_288, 4_096
# Places that a thread spreads at once where a transposed convolution has them last.
_ROWS = 128


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
    made = _Convolution(args)
    places = prod(made.image[2:] if made.transposed else made.places)
    padded = _padding_bytes(args, made.image, made.weight, places) * made.itemsize
    if args[0].device.type not in ("cpu", "meta"):
        return Workspace(padded, 0)
    copies = made.copies
    forward = max(padded, _forward_bytes(made) - copies)
    return Workspace(forward, max(0, _reverse_bytes(made) - copies - forward))


def convolution_bytes(args: Sequence[Any]) -> int:
    """All that a convolution takes while it runs, its result too: told beforehand.

    Args:
        args: As of `workspace_bytes`.

    Examples:
        >>> convolution_bytes(())
        0
    """
    if len(args) != 9 or not isinstance(args[1], torch.Tensor):
        return 0
    made = _Convolution(args)
    return made.copies + made.result + workspace_bytes(args).forward


def has_direct_kernels() -> bool:
    """Tell whether this processor's convolutions are direct for nearly all shapes."""
    return torch.backends.cpu.get_cpu_capability() == "AVX512"


def _padding_bytes(
    args: Sequence[Any], image: Sequence[int], weight: Sequence[int], places: int
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
        padded += places * prod(weight[1:])
    return padded


class _Convolution:
    """The sizes of a convolution, in bytes where nothing else is said."""

    def __init__(self, args: Sequence[Any]) -> None:
        image, weight, _, stride, padding, dilation, transposed, _, groups = args
        self.itemsize = image.itemsize
        self.channels_last = _has_channels_last(image) or _has_channels_last(weight)
        self.image, self.weight = image.shape, weight.shape
        self.groups, self.transposed = groups, transposed
        dimensions = range(len(self.image) - 2)
        self.stride, self.padding, self.dilation = (
            [values[k] if k < len(values) else values[0] for k in dimensions]
            for values in (stride, padding, dilation)
        )
        self.places = [self._places(k) for k in dimensions]

    def _places(self, k: int) -> int:
        """The length of the result in a dimension."""
        size, kernel = self.image[2 + k], self.dilation[k] * (self.weight[2 + k] - 1)
        if self.transposed:
            return max(
                1, (size - 1) * self.stride[k] - 2 * self.padding[k] + kernel + 1
            )
        return max(1, (size + 2 * self.padding[k] - kernel - 1) // self.stride[k] + 1)

    @property
    def channels(self) -> tuple[int, int]:
        """How many are made and read in a group."""
        made, read = self.weight[0] // self.groups, self.weight[1]
        return (read, made) if self.transposed else (made, read)

    @property
    def weights(self) -> int:
        return prod(self.weight) * self.itemsize

    @property
    def copies(self) -> int:
        """All that is read and made."""
        return prod(self.image) * self.itemsize + self.weights + self.result

    @property
    def result(self) -> int:
        made = self.image[0] * self.channels[0] * self.groups * prod(self.places)
        return made * self.itemsize

    @property
    def matrix(self) -> int:
        """One image as a matrix; a volume is written out slice by slice."""
        slices = self.places[0] if len(self.image) == 5 else 1
        row = prod(self.weight[2:]) * self.channels[1]
        return prod(self.places) // slices * row * self.itemsize

    def blocked(self, block: int) -> int:
        """The weights, each group in blocks of channels."""
        made, read = (channels + -channels % block for channels in self.channels)
        return self.groups * made * read * prod(self.weight[2:]) * self.itemsize

    @property
    def one_each(self) -> bool:
        """Whether each group reads one channel."""
        return self.groups > 1 and self.channels[1] == 1

    @property
    def pointwise(self) -> bool:
        return prod(self.weight[2:]) == 1

    @property
    def strided(self) -> bool:
        return any(each > 1 for each in self.stride)


def _has_channels_last(tensor: torch.Tensor) -> bool:
    return suggest_memory_format(tensor) is not torch.contiguous_format


def _forward_bytes(made: _Convolution) -> int:
    """What lies beside the operands and the result, as far as it is known."""
    threads, found = torch.get_num_threads(), 0
    if made.channels_last:
        # The weights twice; in whole blocks if a group reads one and makes more.
        few = made.one_each and made.channels[0] > 1
        block = _channel_block() if few or made.groups == 1 else 1
        found = made.weights + made.blocked(block) + _tiles()
        if made.transposed:
            rows = min(_ROWS, prod(made.image[2:]))
            found += threads * rows * prod(made.weight[1:]) * made.itemsize
    elif made.pointwise and made.strided:
        # Each thread gathers what it reads.
        read = made.channels[1] * made.groups * prod(made.places)
        found = made.weights + (prod(made.image) + threads * read) * made.itemsize
    if not has_direct_kernels() and _is_indirect_forward(made):
        found = max(found, threads * min(made.matrix, _MATRIX))
    return found


def _reverse_bytes(made: _Convolution) -> int:
    """The same of the gradients of the image and of the weight."""
    threads, found = torch.get_num_threads(), 0
    indirect = _is_indirect_backward(made)
    if made.channels_last:
        block = 1 if made.one_each and not indirect else _channel_block()
        found = 2 * made.weights + made.blocked(block) + _tiles()
    if _is_first_layer(made):
        # Each thread lays its image and weight out in blocks.
        wide = [n + 2 * p for n, p in zip(made.image[2:], made.padding, strict=True)]
        each = made.blocked(_BLOCK) + _BLOCK * prod(wide) * made.itemsize
        found = max(found, made.copies + (1 if indirect else threads) * each)
    if indirect and not (made.channels_last and made.one_each and has_direct_kernels()):
        each = made.matrix + _WEIGHTS_PER_THREAD * made.weights
        if made.groups == 1 and max(made.weight[2:]) <= _WIDEST_BACK:
            threads = min(threads, made.image[0])
        found = max(found, threads * each + made.channels_last * made.weights)
    return found


def _tiles() -> int:
    return _TILES + torch.get_num_threads() * _TILE


def _channel_block() -> int:
    return _BLOCK if has_direct_kernels() else _BLOCK // 2


def _is_first_layer(made: _Convolution) -> bool:
    few = made.groups == 1 and made.channels[1] < _BLOCK
    return few and made.strided and not made.pointwise


def _is_indirect_forward(made: _Convolution) -> bool:
    if made.transposed:
        return False
    wide = any(size > _WIDEST for size in made.weight[2:])
    return wide or any(padding > _MOST_PADDING for padding in made.padding)


def _is_indirect_backward(made: _Convolution) -> bool:
    kernel, sizes, direct = made.weight[2:], made.image[2:], has_direct_kernels()
    if made.transposed:
        return False
    if made.pointwise:
        return len(kernel) == 3 and not direct
    if any(size > _WIDEST_BACK for size in kernel):
        return True
    larger = any(k > n for k, n in zip(kernel, sizes, strict=True))
    if made.one_each:
        return larger or any(size > _WIDEST_OF_ONE for size in kernel)
    if any(each > 1 for each in made.dilation):
        reach = [d * (k - 1) for d, k in zip(made.dilation, kernel, strict=True)]
        beyond = any(far >= n for far, n in zip(reach, sizes, strict=True))
        return beyond or made.strided or not direct
    return not direct and (len(kernel) == 3 or larger)

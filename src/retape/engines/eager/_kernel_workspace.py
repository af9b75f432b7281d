"""Bytes that kernels take inside, beyond copies of what they read and make.

On a CPU they are reckoned. Convolutions lay images out in blocks of channels, and
write a small image out as a matrix with a row for each number of the result. Without
AVX-512 gradients of dilated kernels, of those beyond the image and of volumes take
such a matrix, and the weight four times, in each thread. A fused recurrent layer
(oneDNN) makes a workspace for its backward, which autograd saves as one of the
results, and holds all gates of all steps and copies of the weights. Measured with
PyTorch 2.13 and oneDNN 3, for one and four threads.

Fourier transforms (MKL) put the dimensions that they go along last, in a copy; to real
numbers along several of them they go in two steps.

What other kernels take is not in a budget: kernels wider than 13 or of one channel each
beyond 3 by 3, a matrix in each thread; where channels lie last, blocks of the weights.

On a GPU the caching allocator tells (`record/_measure_kernel.py`).
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

import torch

_BLOCK, _SMALL_IMAGE = 16, 20_480
_WEIGHTS_PER_THREAD = 4
# Numbers by which a row may be padded; bytes for where parts of a scratch pad begin.
_PADDING, _ALIGNMENT = 16, 65_536
# By transform, copies of its operand: along one dimension, along several, and what the
# backward takes besides, whose operand may be twice as large (30 shapes and layouts,
# counted on the heap). A line is transformed in 43 kB where it has 4096 numbers.
_TRANSFORMS = {
    "aten::_fft_c2c": (1, 1, 0),
    "aten::_fft_c2r": (0, 2, 0),
    "aten::_fft_r2c": (1, 1, 2),
}
_LINE = 16
# Rows of the workspace for each step: of what enters a layer, of its states, of gates.
_ENTERING, _STATES, _GATES = 6, 5, 4


class Workspace(NamedTuple):
    """Bytes beyond copies of operands and result, which are `beforehand` counted, too.

    Attributes:
        forward: While the kernel runs; negative if it takes less than all copies.
        reverse: What its backward takes beyond that.
        beforehand: All that the operator takes, with its result.
    """

    forward: int = 0
    reverse: int = 0
    beforehand: int = 0


def workspace_bytes(name: str, args: Sequence[Any]) -> Workspace:
    """The workspace of a convolution, a recurrent layer or a Fourier transform.

    That of other operators is none, and on a GPU it is measured.

    Args:
        name: Of the operator.
        args: Its positional arguments.

    Examples:
        >>> x = torch.zeros(4, 8)
        >>> workspace_bytes("aten::_fft_r2c", (x, [1], 0, True))
        Workspace(forward=256, reverse=256, beforehand=0)
    """
    if name not in _RECKONED or args[0].is_cuda:
        return Workspace()
    return _RECKONED[name](*args)


def _of_transform(
    name: str, operand: torch.Tensor, along: Sequence[int], *_: Any
) -> Workspace:
    one, several, more = _TRANSFORMS[name]
    copies = one if len(along) == 1 else several
    line = _LINE * max((operand.shape[each] for each in along), default=0)
    return Workspace(copies * operand.nbytes + line, more * operand.nbytes)


def _is_fast() -> bool:
    return torch.backends.cpu.get_cpu_capability() == "AVX512"


def _of_convolution(
    image: Any, weight: Any, _: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, __: Any, groups: int,
) -> Workspace:  # fmt: skip
    size, kernel = image.shape[2:], weight.shape[2:]
    stride, padding, dilation = (
        [*values] * (len(size) if len(values) == 1 else 1)
        for values in (stride, padding, dilation)
    )
    reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    sides = zip(size, stride, padding, reach, strict=True)
    made = (
        [(n - 1) * s - 2 * p + far + 1 for n, s, p, far in sides]
        if transposed
        else [(n + 2 * p - far - 1) // s + 1 for n, s, p, far in sides]
    )
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    places, row = max(1, prod(made)), prod(weight.shape[1:])
    result = image.shape[0] * channels * places
    # Numbers that fill the last blocks of channels.
    pixels = image.shape[0] * prod(size)
    padded = pixels * (-image.shape[1] % _BLOCK + -weight.shape[0] % _BLOCK)
    padded += 2 * pixels * weight.shape[1] * prod(stride) if transposed else 0
    small = image[0].numel() <= _SMALL_IMAGE
    if small and groups == 1 and (image.shape[0] == 1 or len(size) == 3):
        padded += (prod(size) if transposed else places) * row
    beyond = len(size) == 3 or any(far >= n for far, n in zip(reach, size, strict=True))
    back = 0
    if image.device.type in ("cpu", "meta") and not (transposed or _is_fast()):
        if beyond or any(d > 1 for d in dilation):
            # A volume is written out slice by slice.
            matrix = places // (made[0] if len(size) == 3 else 1) * row
            each = matrix + _WEIGHTS_PER_THREAD * weight.numel()
            back = torch.get_num_threads() * each
    copies = image.numel() + weight.numel() + result
    numbers = padded, max(0, back - copies - padded), copies + result + padded
    return Workspace(*(image.itemsize * each for each in numbers))


def _of_recurrent_layer(sequence: Any, _: Any, weight: Any, *__: Any) -> Workspace:
    hidden = weight.shape[-1]
    steps, batch, entering = (
        sequence.shape[0],
        prod(sequence.shape[1:-1]),
        sequence.shape[-1],
    )
    rows, size = steps * batch, batch * hidden
    weights = _GATES * hidden * (entering + hidden)
    padding = _PADDING * rows + _GATES * (size + _PADDING * hidden)
    # With AVX-512 it was not measured: the gates are counted twice.
    gates = _GATES * rows * hidden * (2 if _is_fast() else 1)
    copies = rows * (entering + hidden) + weights
    forward = gates + weights + padding
    # A cotangent in another layout is copied, too. The input is counted anyway.
    back = gates + 2 * (weights + padding) + rows * (hidden - entering)
    back += 3 * _PADDING * (entering + hidden)
    widest = max(entering, hidden) + _PADDING
    saved = (steps + 1) * (_ENTERING * widest + _STATES * (hidden + _PADDING))
    results = batch * (saved + steps * (_GATES + 1) * hidden + 2 * hidden)
    numbers = forward - copies, max(0, back - forward), results + forward
    found = Workspace(*(sequence.itemsize * each for each in numbers))
    return Workspace(
        found.forward + _ALIGNMENT, found.reverse, found.beforehand + _ALIGNMENT
    )


_RECKONED: dict[str, Callable[..., Workspace]] = {
    "aten::convolution": _of_convolution,
    "aten::convolution_overrideable": _of_convolution,
    "aten::mkldnn_rnn_layer": _of_recurrent_layer,
    **{name: partial(_of_transform, name) for name in _TRANSFORMS},
}

"""Bytes that a Fourier transform takes inside its kernel, beside its result.

Measured with PyTorch 2.13 and MKL, by a counter of the heap: from real numbers along a
dimension that is not the last one, a second result in another layout; to real numbers,
which overwrites what it reads, a copy of that, and one more between two dimensions.
"""

from collections.abc import Sequence
from typing import Any

_TO_COMPLEX, _TO_REAL = "aten::_fft_r2c", "aten::_fft_c2r"


def transform_bytes(name: str, args: Sequence[Any], nbytes: int) -> int:
    """The workspace of a transform; of other operators none.

    Args:
        name: Of the operator.
        args: Its positional arguments: a tensor, and the dimensions.
        nbytes: Those of the tensor.

    Examples:
        >>> import torch
        >>> transform_bytes("aten::_fft_c2r", (torch.ones(4, 4), [0, 1]), 64)
        128
    """
    if name == _TO_REAL:
        return nbytes * min(2, len(args[1]))
    if name != _TO_COMPLEX:
        return 0
    length = max(1, args[0].shape[args[1][-1]])
    return nbytes + 2 * nbytes // length  # the frequencies are one more than half

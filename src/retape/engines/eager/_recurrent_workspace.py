"""Bytes that a fused recurrent layer takes inside its kernels on a CPU.

oneDNN's layer makes a workspace for its backward, which autograd saves as one of the
results: nobody copies it, and it gets no cotangent. Its size shows only when it has
been made, so a bound of it is told beforehand. Beside that the kernel holds all gates
of all steps, and copies of the weights; the backward holds the weights twice, in rows
that are padded. Measured with PyTorch 2.13 without AVX-512, for one and four threads
alike. With it the gates are counted twice, since there it was not measured.
"""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import torch

from retape.engines.eager._convolution_workspace import Workspace, has_direct_kernels

_ARGUMENTS = 16
# Numbers by which a row may be padded; bytes for where parts of a scratch pad begin.
_PADDING, _ALIGNMENT = 16, 65_536
# Rows of the workspace for each step: of what enters a layer, of its states, of gates.
_ENTERING, _STATES, _GATES = 6, 5, 4


class _Layer(NamedTuple):
    """Sizes of one layer: steps, sequences at a time, and numbers in and out."""

    steps: int
    batch: int
    entering: int
    hidden: int
    itemsize: int


def recurrent_workspace_bytes(args: Sequence[Any]) -> Workspace:
    """The workspace of `aten::mkldnn_rnn_layer` beyond copies of what it reads.

    It takes fewer bytes than copies of all that it reads and makes where an input is
    wide: then the first number is negative.

    Args:
        args: Its positional arguments: the input, two weights and what follows.

    Examples:
        >>> recurrent_workspace_bytes(())
        Workspace(forward=0, reverse=0)
    """
    layer = _layer(args)
    if layer is None:
        return Workspace(0, 0)
    steps, batch, entering, hidden, itemsize = layer
    rows, size = steps * batch, batch * hidden
    weights = _GATES * hidden * (entering + hidden)
    padding = _PADDING * rows + _GATES * (size + _PADDING * hidden)
    gates = _GATES * rows * hidden * (2 if has_direct_kernels() else 1)
    forward = gates + weights + padding
    copies = rows * (entering + hidden) + weights
    # A cotangent in another layout is copied, too. The input is counted anyway.
    back = gates + 2 * (weights + padding) + rows * (hidden - entering)
    back += 3 * _PADDING * (entering + hidden)
    return Workspace(
        (forward - copies) * itemsize + _ALIGNMENT,
        max(0, back - forward) * itemsize,
    )


def recurrent_result_bytes(args: Sequence[Any]) -> int:
    """Bytes that `aten::mkldnn_rnn_layer` may take while it runs: told beforehand.

    Args:
        args: Its positional arguments.

    Examples:
        >>> recurrent_result_bytes(())
        0
    """
    layer = _layer(args)
    if layer is None:
        return 0
    steps, batch, entering, hidden, itemsize = layer
    widest = max(entering, hidden) + _PADDING
    saved = (steps + 1) * (_ENTERING * widest + _STATES * (hidden + _PADDING))
    numbers = batch * (saved + steps * (_GATES + 1) * hidden + 2 * hidden)
    copies = steps * batch * (entering + hidden) + _GATES * hidden * (entering + hidden)
    return (numbers + copies) * itemsize + recurrent_workspace_bytes(args).forward


def _layer(args: Sequence[Any]) -> _Layer | None:
    """The sizes; `None` where it is another operator, or has no room of its own."""
    if len(args) != _ARGUMENTS or not isinstance(args[2], torch.Tensor):
        return None
    sequence, hidden = args[0], args[2].shape[-1]
    steps, batch = sequence.shape[0], prod(sequence.shape[1:-1])
    return _Layer(steps, batch, sequence.shape[-1], hidden, sequence.itemsize)

"""Values that the program brought along: inputs, parameters, buffers.

They are not computed, so they cannot be recomputed. The trace keeps a reference and
the version that it saw; a later overwrite is an error, as it is in plain PyTorch.
"""

from typing import NamedTuple

import torch

from ._errors import MutationError

Tensor = torch.Tensor


class Foreign(NamedTuple):
    """A slot that the trace did not make; `version` -1 if it is a private copy."""

    tensor: Tensor
    version: int
    nbytes: int


def checked(known: Foreign) -> Tensor:
    """The tensor of a foreign slot, if nobody has overwritten it since."""
    tensor, version, nbytes = known
    if version >= 0:
        if tensor._version != version:
            raise MutationError(_overwritten(known))
        if tensor.untyped_storage().nbytes() != nbytes:
            raise MutationError(_resized(known))
    return tensor


def without_history(tensor: Tensor) -> Tensor:
    """The tensor, or an alias without graph that shares its version counter."""
    if tensor.grad_fn is None:
        return tensor
    # Under a dispatch mode `detach` shares the counter only if this level runs.
    with torch._C._SetExcludeDispatchKeyGuard(
        torch._C.DispatchKey.ADInplaceOrView, False
    ):
        return tensor.detach()


def _describe(tensor: Tensor) -> str:
    return f"A tensor of shape `{tuple(tensor.shape)}` and type `{tensor.dtype}`"


def _overwritten(known: Foreign) -> str:
    return (
        f"{_describe(known.tensor)}, which the program under `recompute` read, was "
        f"overwritten before its backward (version `{known.tensor._version}`, expected "
        f"`{known.version}`), so what was computed from it cannot be computed again. "
        "Run the backward before the optimiser's step, or read a `clone()`."
    )


def _resized(known: Foreign) -> str:
    return (
        f"{_describe(known.tensor)}, which the program under `recompute` read, had "
        f"`{known.nbytes}` bytes and has "
        f"`{known.tensor.untyped_storage().nbytes()}` now: it was freed or resharded "
        "before the backward. Keep parameters gathered until then (FSDP2: "
        "`reshard_after_forward=False`), or make each unit a `retape.torch.checkpoint`."
    )

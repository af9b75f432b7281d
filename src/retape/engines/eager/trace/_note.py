"""What is known of slots that are out of the ordinary: each of them has one note.

A slot that an operator made has none, as a rule: what is to be known of it stands in
the columns of the trace. Inputs, parameters and buffers are not computed, so they
cannot be recomputed. The trace keeps a reference and the version that it saw; a later
overwrite is an error, as it is in plain PyTorch.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from retape._errors import MutationError
from retape.engines.eager.trace._fingerprint import Exposure
from retape.engines.eager.trace._geometry import Geometry


class Input(NamedTuple):
    """A slot that the trace did not make; `version` -1 if it is a private copy.

    `storage` is the one that it had, which stays alive: another one may be put in its
    place, by `tensor.data = other`.
    """

    tensor: Tensor
    version: int
    nbytes: int
    storage: torch.UntypedStorage

    def value(self) -> Tensor:
        """The tensor, if nobody has overwritten it since.

        Raises:
            MutationError: If somebody has.
        """
        tensor, version, nbytes, storage = self
        if tensor.untyped_storage()._cdata != storage._cdata:
            raise MutationError(_replaced(self))
        if version >= 0:
            if tensor._version != version:
                raise MutationError(_overwritten(self))
            if tensor.untyped_storage().nbytes() != nbytes:
                raise MutationError(_was_resized(self))
        return tensor


@dataclass(slots=True)
class Note:
    """What is out of the ordinary about a slot.

    Of a slot that no step made:

    Attributes:
        input: What the program brought along, or a copy of it: the slot is *foreign*.
        received: It is held for good though it is not foreign: other processes gave it,
            or it was made before the present section and is read in it.
        same: The slot of an earlier section with the same value; -1 if none has.
        saved: Autograd has saved it, if it is `received`.
        first_read: The step that reads it first, if it gets a gradient: there the sum
            of its cotangents ends. Else -1.
        whole: The geometry of the whole tensor then, if that is contiguous.
        apart: The last step that reads it, if the first sum of its cotangents is a
            tensor of its own; else -1.

    And of any:

        filled_as: If autograd saved it before it had a value, the slot that has it; as
            long as none has, the slot itself.
        exposure: What was seen of it in memory that NumPy, say, may write unseen.
        checksum: Of its value, where values are compared.
        gapped: It has parts that no kernel has written.
    """

    input: Input | None = None
    received: bool = False
    same: int = -1
    saved: bool = False
    first_read: int = -1
    whole: Geometry | None = None
    apart: int = -1
    filled_as: int | None = None
    exposure: Exposure | None = None
    checksum: int | None = None
    gapped: bool = False


def is_exposed(tensor: Tensor, storage: torch.UntypedStorage) -> bool:
    """Tell whether a tensor lies in memory of another library, such as NumPy's.

    Parameters in a mapped file do so, too, and are read only.
    """
    if storage.resizable() or storage.nbytes() == 0:
        return False
    seen = tensor, tensor._base
    return not any(isinstance(each, torch.nn.Parameter) for each in seen)


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


def _overwritten(known: Input) -> str:
    return (
        f"{_describe(known.tensor)}, which the program under `recompute` read, was "
        f"overwritten before its backward (version `{known.tensor._version}`, expected "
        f"`{known.version}`), so what was computed from it cannot be computed again. "
        "Run the backward before the optimiser's step, or read a `clone()`."
    )


def written_by_others(tensor: Tensor) -> str:
    """What is said of a value that was lost since nobody knew of the write."""
    return (
        f"{_describe(tensor)}, which the program under `recompute` had made, was "
        "written by another thread, or by a kernel that is no operator of PyTorch's, "
        "while its value was needed for the backward. Make the kernel an operator "
        "(`torch.library.custom_op`), write in the program's own thread, or write "
        "into a new tensor."
    )


def _replaced(known: Input) -> str:
    return (
        f"{_describe(known.tensor)}, which the program under `recompute` read, was "
        "given another memory (`tensor.data = other`) before its backward, so what was "
        "computed from it cannot be computed again. Do that after the backward, or "
        "read a `clone()`."
    )


def _was_resized(known: Input) -> str:
    return (
        f"{_describe(known.tensor)}, which the program under `recompute` read, had "
        f"`{known.nbytes}` bytes and has "
        f"`{known.tensor.untyped_storage().nbytes()}` now: it was freed or resharded "
        "before the backward. Sharded parameters are understood "
        "where `fully_shard` (FSDP2) gathers them for a module; otherwise "
        "keep them until then."
    )

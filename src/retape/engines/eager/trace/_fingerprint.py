"""Fingerprints of values, to find programs that are not the same when run again."""

import ctypes
import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

from retape.engines.eager._errors import DeterminismError, MutationError
from retape.engines.eager.trace._geometry import below_autograd, tensor_on

if TYPE_CHECKING:
    from retape.engines.eager.trace._trace import Trace


def fingerprint(
    storage: torch.UntypedStorage, first: int = 0, last: int | None = None
) -> int:
    """A checksum of the bytes of a storage, or of some of them."""
    last = storage.nbytes() if last is None else last
    # Through NumPy would be shorter, but it makes the storage unresizable for good.
    if storage.device.type != "cpu":
        storage, first, last = storage[first:last].cpu(), 0, last - first
    content = (ctypes.c_char * (last - first)).from_address(
        storage.data_ptr() + first or 1
    )
    return zlib.crc32(content)


def fingerprint_of(trace: "Trace", slot: int, storage: torch.UntypedStorage) -> int:
    """A checksum of the value of a slot, gaps that no kernel writes left out."""
    if slot in trace.gapped:
        with below_autograd():
            seen = tensor_on(storage, trace.roots[slot])
            storage = seen.clone(
                memory_format=torch.contiguous_format
            ).untyped_storage()
    return fingerprint(storage)


def clear(tensor: torch.Tensor, first: int) -> None:
    """Make memory that nobody has written the same at each run, to compare it.

    Args:
        tensor: A tensor of its storage.
        first: Bytes that were there before and keep their values, in a resized one.
    """
    storage = tensor.untyped_storage()
    with below_autograd():
        whole = torch.empty(0, dtype=torch.uint8, device=storage.device)
        count = max(0, storage.nbytes() - first)
        whole.set_(storage, first, (count,), (1,)).zero_()  # pyright: ignore[reportArgumentType]


def check_replayed(trace: "Trace", index: int, slot: int, root: torch.Tensor) -> None:
    """Compare a recomputed value with its first run.

    Raises:
        DeterminismError: If they differ.
    """
    expected = trace.prints.get(slot)
    if expected is None:
        return
    if fingerprint_of(trace, slot, root.untyped_storage()) != expected:
        raise DeterminismError(
            f"Step `{index}`, `{trace.steps[index].signature.func}`, gave another "
            "result when it was run again. Something that it reads was changed behind "
            "PyTorch's back (a `.data` write, NumPy, another thread), or the operator "
            "is not deterministic (see `torch.use_deterministic_algorithms`)."
        )


def check_foreign(trace: "Trace", slot: int) -> None:
    """Compare an input of the trace with what it was when it was first read.

    Raises:
        MutationError: If it differs.
    """
    tensor, expected = trace.foreign[slot].tensor, trace.prints.get(slot)
    if expected is not None and fingerprint(tensor.untyped_storage()) != expected:
        raise MutationError(_rewritten(tensor))


def check_exposed(trace: "Trace", needed: Iterable[int]) -> None:
    """Compare what steps are about to read again of memory that others may write.

    Raises:
        MutationError: If it differs.
    """
    for step in (trace.steps[index] for index in needed):
        for slot, seen in zip(step.reads, step.signature.geometries, strict=True):
            known = trace.foreign.get(slot)
            if known is not None and slot in trace.exposed:
                tensor = known.value()
                if not trace.exposed[slot].agrees(tensor.untyped_storage(), seen):
                    raise MutationError(_rewritten(tensor))


def _rewritten(tensor: torch.Tensor) -> str:
    return (
        f"A tensor of shape `{tuple(tensor.shape)}` that the program under "
        "`recompute` read has other values now, although its version has not "
        "changed: it was written through `.data`, NumPy or another library. "
        "Write with `torch.no_grad()` before the run, or after its backward."
    )

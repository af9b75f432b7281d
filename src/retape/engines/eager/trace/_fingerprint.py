"""Fingerprints: of values that are run again, and of memory that others may write.

The former find programs that are not the same when run again. As to the latter, NumPy,
say, writes without an operator, so each read compares what it reads with what was there
before. It looks at its own elements alone: a program that reads a sequence row by row
looks once at each row, and not at all of it each time. Of a value that was the
program's own before others could write it, all has to be known beforehand: it is known
by blocks, of which a read looks at those that it touches.
"""

import ctypes
import zlib
from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING

import torch
from torch import UntypedStorage as Storage

from retape._errors import DeterminismError, MutationError
from retape.engines.eager.trace._geometry import Geometry, below_autograd, tensor_on
from retape.engines.eager.trace._holdings import Buffer

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
    if trace.noted(slot).gapped:
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
    expected = trace.noted(slot).checksum
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
    known, expected = trace.noted(slot).input, trace.noted(slot).checksum
    if known is None or expected is None:
        return
    if fingerprint(known.tensor.untyped_storage()) != expected:
        raise MutationError(_rewritten(known.tensor))


def watch(trace: "Trace", buffer: Buffer, tensor: torch.Tensor) -> None:
    """Have each read of a foreign value look whether others have changed it."""
    seen = Exposure()
    seen.agrees(tensor.untyped_storage(), trace.geometries.of(tensor))
    expose(trace, buffer, seen)


def hand_out(trace: "Trace", storage: Storage) -> None:
    """From now on others may write a storage without an operator."""
    trace.shared.add(storage._cdata)
    watch_shared(trace, storage)


def watch_shared(trace: "Trace", storage: Storage) -> None:
    """The same of a value of ours, if its memory was handed out."""
    buffer = trace.buffer_on(storage)
    if buffer is None or buffer.uninitialised:
        return  # it is not known yet, or it is looked at already
    if storage._cdata in trace.shared:
        if buffer.slot in trace.held.storages:
            trace.hold_copy(buffer.slot, storage)
        expose(trace, buffer, Exposure.of_all(storage))


def expose(trace: "Trace", buffer: Buffer, seen: "Exposure") -> None:
    """What was seen of a value is compared with what each read finds."""
    trace.note(buffer.slot).exposure = seen
    trace.exposed = buffer.uninitialised = True


def check_exposed(trace: "Trace", needed: Iterable[int]) -> None:
    """Compare what steps are about to read again of memory that others may write.

    Raises:
        MutationError: If it differs.
    """
    for step in (trace.steps[index] for index in needed):
        for slot, seen in zip(step.reads, step.signature.geometries, strict=True):
            note = trace.noted(slot)
            if note.input is not None and note.exposure is not None:
                tensor = note.input.value()
                if not note.exposure.agrees(tensor.untyped_storage(), seen):
                    raise MutationError(_rewritten(tensor))


def _rewritten(tensor: torch.Tensor) -> str:
    return (
        f"A tensor of shape `{tuple(tensor.shape)}` that the program under "
        "`recompute` read has other values now, although its version has not "
        "changed: it was written through `.data`, NumPy or another library. "
        "Write with `torch.no_grad()` before the run, or after its backward."
    )


# Small against what is read as a rule, and large against a checksum of it.
_BLOCK_BYTES = 1 << 16


class Exposure:
    """Checksums of one value in such memory.

    Args:
        blocks: Of its parts, where all of it is known.
    """

    __slots__ = ("_blocks", "_windows")

    def __init__(self, blocks: list[int] | None = None) -> None:
        self._blocks = blocks
        self._windows: dict[Geometry, int] = {}

    @classmethod
    def of_all(cls, storage: Storage) -> "Exposure":
        """What is there now, all of it."""
        return cls([fingerprint(storage, *part) for part in _blocks(storage, None)])

    def agrees(self, storage: Storage, seen: Geometry | None) -> bool:
        """Whether what is seen, or all of it, is as it was; what is new is noted."""
        if seen is None:
            return self._same_blocks(storage, None)
        found = _window(storage, seen)
        if seen not in self._windows and not self._same_blocks(storage, seen):
            return False
        return self._windows.setdefault(seen, found) == found

    def _same_blocks(self, storage: Storage, seen: Geometry | None) -> bool:
        known = self._blocks
        return known is None or all(
            fingerprint(storage, *part) == known[part[0] // _BLOCK_BYTES]
            for part in _blocks(storage, seen)
        )

    def overwritten(self, storage: Storage, seen: Geometry) -> "Exposure":
        """What is there after the program itself has written what a geometry sees."""
        if self._blocks is None or storage.nbytes() > _BLOCK_BYTES * len(self._blocks):
            return Exposure.of_all(storage)
        blocks = self._blocks.copy()
        for part in _blocks(storage, seen):
            blocks[part[0] // _BLOCK_BYTES] = fingerprint(storage, *part)
        return Exposure(blocks)


def _blocks(storage: Storage, seen: Geometry | None) -> list[tuple[int, int]]:
    """Where blocks begin and end: all of them, or those that a geometry may touch."""
    end = storage.nbytes()
    first, last = (0, end) if seen is None else _span(seen)
    begins = range(first // _BLOCK_BYTES * _BLOCK_BYTES, min(last, end), _BLOCK_BYTES)
    return [(begin, min(begin + _BLOCK_BYTES, end)) for begin in begins]


def _span(seen: Geometry) -> tuple[int, int]:
    """The bytes from the first element of a geometry to its last one."""
    width = seen.dtype.itemsize
    if 0 in seen.size:
        return 0, 0
    far = sum((n - 1) * step for n, step in zip(seen.size, seen.stride, strict=True))
    return seen.offset * width, (seen.offset + far + 1) * width


def _window(storage: Storage, seen: Geometry) -> int:
    """A checksum of the elements that a geometry sees, each once."""
    first, last = _span(seen)
    if last - first == prod(seen.size) * seen.dtype.itemsize:
        return fingerprint(storage, first, last)
    with below_autograd():
        # An element that is seen again and again has a stride of zero.
        tensor = tensor_on(storage, seen)
        for dim, step in enumerate(seen.stride):
            tensor = tensor if step else tensor.narrow(dim, 0, min(1, seen.size[dim]))
        compact = tensor.clone(memory_format=torch.contiguous_format)
    return fingerprint(compact.untyped_storage())

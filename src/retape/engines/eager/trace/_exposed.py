"""What was seen of memory that others may write without PyTorch's knowledge.

NumPy, say, writes without an operator, so each read compares what it reads with what
was there before. It looks at its own elements alone: a program that reads a sequence
row by row looks once at each row, and not at all of it each time. Of a value that was
the program's own before others could write it, all has to be known beforehand: it is
known by blocks, of which a read looks at those that it touches.
"""

from math import prod

import torch
from torch import UntypedStorage as Storage

from retape.engines.eager.trace._fingerprint import fingerprint
from retape.engines.eager.trace._geometry import Geometry, below_autograd, tensor_on

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

    def agrees(self, storage: Storage, seen: Geometry) -> bool:
        """Whether what a geometry sees is what was there; what is new is noted."""
        found = _window(storage, seen)
        if seen not in self._windows and not self._same_blocks(storage, seen):
            return False
        return self._windows.setdefault(seen, found) == found

    def _same_blocks(self, storage: Storage, seen: Geometry) -> bool:
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

"""The bytes that a graph saves, as a stage of a loop is run."""

from typing import Any

import torch
from torch import Tensor

from retape.engines.eager.trace._native_handle import native


class SavedBytes(torch.autograd.graph.saved_tensors_hooks):
    """Counts the bytes that a graph saves, each storage once."""

    def __init__(self, brought: frozenset[int]) -> None:
        self._module: Any = native()
        self._nbytes, self._seen = 0, set(brought)
        if self._module is None:
            super().__init__(self._pack, lambda tensor: tensor)
        else:
            pack, unpack, self._handle = self._module.counter(brought)
            super().__init__(pack, unpack)

    @property
    def nbytes(self) -> int:
        """The bytes counted so far."""
        if self._module is not None:
            return self._module.counted(self._handle)
        return self._nbytes

    def _pack(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._seen:
            self._seen.add(storage.data_ptr())
            self._nbytes += storage.nbytes()
        return tensor

"""The bytes that a graph saves, as a stage of a loop is run."""

import torch
from torch import Tensor


class SavedBytes(torch.autograd.graph.saved_tensors_hooks):
    """Counts the bytes that a graph saves, each storage once.

    Attributes:
        nbytes: The bytes counted so far.
    """

    def __init__(self, brought: frozenset[int]) -> None:
        super().__init__(self._pack, lambda tensor: tensor)
        self.nbytes, self._seen = 0, set(brought)

    def _pack(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._seen:
            self._seen.add(storage.data_ptr())
            self.nbytes += storage.nbytes()
        return tensor

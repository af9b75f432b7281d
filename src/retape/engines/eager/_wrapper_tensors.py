"""Tensors that wrap tensors: `DTensor`, and results of collectives that still run.

A wrapper has no storage of its own. Its class handles an operator by running operators
on what it wraps, and these are recorded; so all that is left to do is to save the inner
tensors in its place, and to wrap what takes their place again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass


@dataclass(frozen=True, slots=True)
class SavedWrapper:
    """Stands in an autograd graph for a wrapper.

    Attributes:
        kind: The class of the wrapper.
        parts: By name, what stands for each inner tensor.
        others: What else it is made of: a mesh of devices, say.
        context: What the class says of itself beside them.
        size: Of the wrapper.
        stride: Of the wrapper.
    """

    kind: Any
    parts: dict[str, Any]
    others: dict[str, Any]
    context: Any
    size: Any
    stride: Any

    def value(self, inner: Callable[[Any], Tensor]) -> Tensor:
        """The wrapper, with what `inner` finds for each part."""
        found = {name: inner(part) for name, part in self.parts.items()}
        return self.kind.__tensor_unflatten__(
            {**found, **self.others}, self.context, self.size, self.stride
        )


def is_wrapper(kind: type) -> bool:
    """Tell whether tensors of a class can be taken apart and put together."""
    return hasattr(kind, "__tensor_flatten__") and hasattr(kind, "__tensor_unflatten__")


def save_wrapper(tensor: Any, save: Callable[[Tensor], Any]) -> SavedWrapper | None:
    """Save the inner tensors of a wrapper; `None` if the tensor is none."""
    nested = bool(tensor.is_nested)
    if not is_traceable_wrapper_subclass(tensor):
        return None
    names, context = tensor.__tensor_flatten__()
    found = {name: getattr(tensor, name) for name in names}
    inner = {k: each for k, each in found.items() if isinstance(each, Tensor)}
    # Symbols for the lengths of a jagged tensor belong to its very offsets.
    parts = {
        k: each if nested and not each.is_floating_point() else save(each)
        for k, each in inner.items()
    }
    others = {k: each for k, each in found.items() if not isinstance(each, Tensor)}
    return SavedWrapper(
        type(tensor), parts, others, context, tensor.size(), tensor.stride()
    )

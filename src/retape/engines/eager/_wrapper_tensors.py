"""Tensors that wrap tensors: `DTensor`, and results of collectives that still run.

A wrapper has no storage of its own. Its class handles an operator by running operators
on what it wraps, and these are recorded; so all that is left to do is to save the inner
tensors in its place, and to wrap what takes their place again. A class that does not
say how it is taken apart is right, too, but what autograd saves of it is kept whole.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from retape._errors import MutationError, UnsupportedError

_MADE_ANEW = "already associated to a python object of type"


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


@dataclass(frozen=True, slots=True)
class SavedWhole:
    """Stands for a tensor whose class nobody can take apart.

    Attributes:
        tensor: The tensor.
        version: Of it, when it was saved; -1 if it has none.
    """

    tensor: Tensor
    version: int

    def value(self) -> Tensor:
        """The tensor, if nobody has overwritten it since.

        Raises:
            MutationError: If somebody has.
        """
        if self.version >= 0 and self.tensor._version != self.version:
            raise MutationError(
                f"A tensor of type `{type(self.tensor).__name__}` was overwritten "
                "after autograd had saved it under `recompute`. Write into a copy."
            )
        return self.tensor


def writes_of(tensor: Tensor) -> int:
    """The writes that PyTorch has counted; -1 of inference tensors: none are."""
    return -1 if tensor.is_inference() else tensor._version


def is_wrapper(kind: type) -> bool:
    """Tell whether tensors of a class can be taken apart and put together."""
    return hasattr(kind, "__tensor_flatten__") and hasattr(kind, "__tensor_unflatten__")


def save_wrapper(
    tensor: Any, save: Callable[[Tensor], Any]
) -> SavedWrapper | SavedWhole | None:
    """Save the inner tensors of a wrapper; `None` if the tensor is none."""
    nested = bool(tensor.is_nested)
    if not is_wrapper(type(tensor)):
        if isinstance(tensor, FakeTensor) or not _answers_itself(type(tensor)):
            return None
        return SavedWhole(tensor, writes_of(tensor))
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


def _answers_itself(kind: Any) -> bool:
    """Tell whether a class handles operators, as no plain tensor's does."""
    plain: Any = Tensor
    return kind.__torch_dispatch__ is not plain.__torch_dispatch__


_NO_OPERAND = (
    "A function given to `torch.cond`, `scan` or another such operator reads a "
    "tensor that is none of its operands. It runs eagerly inside of a "
    "recomputation, where PyTorch cannot differentiate that. Pass the tensor as an "
    "operand, or write `if` or a loop, which are exact."
)
# What PyTorch says, and what it means inside of a recomputation.
_MEANINGS = {
    # A constructor finds that what it is given is a tensor of another class already.
    _MADE_ANEW: (
        "A class of tensors was called on a tensor (`Custom(tensor)`) inside of a "
        "recomputation, and PyTorch cannot make one so while operators are recorded. "
        "Make it outside, or write `tensor.as_subclass(Custom)` and set its attributes."
    ),
    # It traces the functions given to an operator with stand-ins for the operands.
    "convert all Tensors to FakeTensors first": _NO_OPERAND,
    "Cannot access data pointer of Tensor (e.g. FakeTensor": _NO_OPERAND,
}


def refusal_of(error: BaseException | None) -> UnsupportedError | None:
    """The refusal that an error of PyTorch's means, if it is one."""
    if isinstance(error, RuntimeError | AssertionError):
        for said, meaning in _MEANINGS.items():
            if said in str(error):
                return UnsupportedError(meaning)
    return None

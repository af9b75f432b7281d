"""PyTorch's tensors as leaves: copied with their memory layout, and made of arrays.

A tensor is memory that a step may write, as a NumPy array is: a copy has the strides of
its original. Copies are no part of autograd's graph, and each has memory of its own: a
state in which tensors overlap is refused. Nothing here imports PyTorch: a process that
has not imported it has no tensors.
"""

# PyTorch is found when there are tensors, and has no types here.
# pyright: standard

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from retape._errors import SnapshotError, StoreError
from retape.storage._trees._arrays import Array, span

if TYPE_CHECKING:
    from collections.abc import Sequence


_INTEGERS = {1: "uint8", 2: "int16", 4: "int32"}
"""In the place of types that NumPy has not, such as bfloat16, by their bytes."""


def is_tensor(value: object) -> bool:
    """Tell whether a value is a tensor of PyTorch's, and of no other subclass."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and type(value) in (torch.Tensor, torch.nn.Parameter)


def copy_tensor(tensor: Any) -> Any:
    """A copy outside of any graph.

    Raises:
        StoreError: If it is of a kind that cannot be copied.
    """
    plain = _physical(tensor)
    return _marked(_cloned(plain.tensor), plain)


def check_apart(tensors: Sequence[Any], arrays: Sequence[Array]) -> None:
    """Refuse a tensor whose memory is another part's, too: each would get its own copy.

    Raises:
        StoreError: If there are such.
    """
    spans = [(str(t.device), *_span(_physical(t).tensor), True) for t in tensors]
    spans += [("cpu", *span(array), False) for array in arrays]
    ends: dict[tuple[str, bool], int] = {}
    for device, low, high, is_one in sorted(spans):
        others = (True, False) if is_one else (True,)
        if low < high and any(low < ends.get((device, kind), 0) for kind in others):
            raise StoreError(
                "a tensor in a state is the same memory as another part of it, or "
                "overlaps it. Give it memory of its own, by `.clone()`; or let the "
                "state consist of one of them, and make the other one of it in the "
                "step."
            )
        ends[device, is_one] = max(high, ends.get((device, is_one), 0))


def detached(tensor: Any) -> Any:
    """The same memory, without the graph that led to it."""
    return tensor.detach() if tensor.requires_grad else tensor


def tensor_nbytes(tensor: Any) -> int:
    """The bytes that a copy takes."""
    low, high = _span(_physical(tensor).tensor)
    return high - low


def tensor_to_array(tensor: Any) -> tuple[Array, list[Any]]:
    """The array that a file holds, and what it must say besides, as plain JSON."""
    plain = _physical(tensor)
    found, device = plain.tensor, str(plain.tensor.device)
    if found.device.type != "cpu":
        found = found.cpu()
    name = str(found.dtype).partition(".")[2]
    try:
        array = found.numpy()
    except TypeError:
        torch: Any = sys.modules["torch"]
        integers = _INTEGERS.get(found.element_size())
        if integers is None:
            raise StoreError(
                f"a tensor of dtype `{found.dtype}` cannot be written. Use another "
                "dtype, or a `retape.MemoryStore`."
            ) from None
        array = found.view(getattr(torch, integers)).numpy()
    return array, ["torch", name, device, plain.is_conj, plain.is_neg]


def tensor_from_array(array: Array, note: list[Any]) -> Any:
    """The tensor that was written.

    Raises:
        SnapshotError: If this process has no PyTorch, or not that device.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None:
        raise SnapshotError("a snapshot holds tensors. Import `torch` before the call.")
    _, name, device, is_conj, is_neg = note
    dtype = getattr(torch, name)
    if not isinstance(dtype, torch.dtype):
        raise ValueError("no such type")
    made = torch.from_numpy(array)
    if array.flags.owndata:
        made = made.clone()  # To be aligned as PyTorch aligns.
    if made.dtype != dtype:
        made = made.view(dtype)
    try:
        made = made if device == "cpu" else made.to(device)
    except (RuntimeError, AssertionError) as error:
        raise SnapshotError(
            f"a snapshot holds a tensor of `{device}`, which this process does not "
            f"have: {str(error).splitlines()[0]}. Its state is recomputed."
        ) from None
    return _marked(made, _Physical(made, is_conj, is_neg))


def as_numbers(tensor: Any) -> Array:
    """The numbers of a tensor as an array, those of small types in single precision."""
    found = tensor.detach().cpu().resolve_conj().resolve_neg()
    try:
        return found.numpy()
    except TypeError:
        return found.float().numpy()


def with_numbers(array: Any, like: Any) -> Any:
    """A tensor of the same type, on the same device, with other numbers."""
    torch: Any = sys.modules["torch"]
    return torch.as_tensor(array).to(dtype=like.dtype, device=like.device)


class _Physical(NamedTuple):
    """A tensor as it lies in memory, and the marks that say how it is read."""

    tensor: Any
    is_conj: bool
    is_neg: bool


def _physical(tensor: Any) -> _Physical:
    torch: Any = sys.modules["torch"]
    _check_kind(tensor, torch)
    tensor = tensor.detach()
    is_conj, is_neg = tensor.is_conj(), tensor.is_neg()
    tensor = tensor.conj() if is_conj else tensor
    return _Physical(torch._neg_view(tensor) if is_neg else tensor, is_conj, is_neg)


def _marked(tensor: Any, like: _Physical) -> Any:
    tensor = sys.modules["torch"]._neg_view(tensor) if like.is_neg else tensor
    return tensor.conj() if like.is_conj else tensor


def _check_kind(tensor: Any, torch: Any) -> None:
    wrapped = getattr(torch._C._functorch, "is_functorch_wrapped_tensor", None)
    if wrapped is not None and wrapped(tensor):
        raise StoreError(
            "a tensor that `torch.func` transforms cannot be in a state: a copy would "
            "be cut off from the transformation. Call `retape.adjoint` outside of it; "
            "for gradients of functions of tensors see `retape.torch`."
        )
    if tensor.layout != torch.strided or tensor.is_nested or tensor.is_quantized:
        kind = "nested" if tensor.is_nested else "quantized"
        kind = kind if tensor.layout == torch.strided else tensor.layout
        raise StoreError(
            f"a tensor that is `{kind}` cannot be in a state: it is not one piece of "
            "memory with strides. Let the state consist of the dense tensors that make "
            "it up."
        )


def _cloned(tensor: Any) -> Any:
    """The same numbers with the same strides, also where these leave gaps."""
    torch: Any = sys.modules["torch"]
    if _is_dense(tensor):
        return tensor.clone(memory_format=torch.preserve_format)
    low, high = _span(tensor)
    count = (high - low) // tensor.element_size()
    memory = torch.empty(count, dtype=tensor.dtype, device=tensor.device)
    made = memory.as_strided(tensor.shape, tensor.stride())
    # What is repeated is written once.
    once = tuple(slice(None if stride else 1) for stride in tensor.stride())
    made[once].copy_(tensor[once])
    return made


def _is_dense(tensor: Any) -> bool:
    """Whether a clone has the same strides: no gaps, and no element twice."""
    if tensor.is_contiguous() or tensor.numel() == 0:
        return True
    pairs = zip(tensor.stride(), tensor.shape, strict=True)
    expected = 1
    for stride, count in sorted(pair for pair in pairs if pair[1] > 1):
        if stride != expected:
            return False
        expected *= count
    return True


def _span(tensor: Any) -> tuple[int, int]:
    """The first byte of a tensor's memory, and the byte after its last."""
    low = tensor.data_ptr()
    if tensor.numel() == 0:
        return low, low
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((count - 1) * stride for count, stride in pairs)
    return low, low + (last + 1) * tensor.element_size()

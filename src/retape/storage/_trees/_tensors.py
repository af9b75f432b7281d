"""PyTorch's tensors as leaves: copied with their memory layout, and made of arrays.

A tensor is memory that a step may write, as a NumPy array is: a copy has the strides of
its original, and tensors that overlap are copied as one region of bytes. Copies are no
part of autograd's graph. Nothing here imports PyTorch: a process that has not imported
it has no tensors.
"""

# PyTorch is found when there are tensors, and has no types here.
# pyright: standard

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from retape._errors import SnapshotError, StoreError
from retape.storage._trees._arrays import Array, overlapping, places_of, span

if TYPE_CHECKING:
    from collections.abc import Sequence


_LINE = 64
"""Bytes of a cache line: kernels may give other last bits on memory that is aligned
otherwise, so a region is aligned as what it is a copy of."""
_INTEGERS = {1: "uint8", 2: "int16", 4: "int32"}
"""In the place of types that NumPy has not, such as bfloat16, by their bytes."""


def is_tensor(value: object) -> bool:
    """Tell whether a value is a tensor of PyTorch's, and of no other subclass."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and type(value) in (torch.Tensor, torch.nn.Parameter)


def copy_tensors(tensors: Sequence[Any]) -> list[Any]:
    """Copies that overlap one another where the originals do, outside of any graph.

    Raises:
        StoreError: If a tensor is of a kind that cannot be copied.
    """
    plain = [_physical(tensor) for tensor in tensors]
    if len(plain) == 1 and _is_dense(plain[0].tensor):
        return [_marked(_cloned(plain[0].tensor), plain[0])]
    for each in plain:
        if each.tensor.device.type != "cpu" and not _is_alone(each, plain):
            raise StoreError(
                f"a tensor on `{each.tensor.device}` of shape "
                f"{tuple(each.tensor.shape)} shares memory with another part of its "
                "state, or has gaps. On such a device each tensor of a state has "
                "memory of its own: call `.contiguous()` or `.clone()`."
            )
    near = [i for i, each in enumerate(plain) if each.tensor.device.type == "cpu"]
    copies: list[Any] = [None] * len(plain)
    for i, copy in zip(near, _copied([plain[i].tensor for i in near]), strict=True):
        copies[i] = copy
    return [
        _marked(_cloned(each.tensor) if copy is None else copy, each)
        for each, copy in zip(plain, copies, strict=True)
    ]


def check_apart(tensors: Sequence[Any], arrays: Sequence[Array]) -> None:
    """Refuse a tensor and an array that are one memory: each would get its own copy.

    Raises:
        StoreError: If there are such.
    """
    if not arrays:
        return
    near = [t for t in tensors if t.device.type == "cpu"]
    spans = [(*_span(_physical(t).tensor), True) for t in near]
    spans += [(*span(array), False) for array in arrays]
    spans.sort()
    end, kinds = 0, set[bool]()
    for low, high, kind in spans:
        kinds = {*kinds, kind} if low < end else {kind}
        end = max(end, high)
        if len(kinds) == 2 and high > low:
            raise StoreError(
                "a tensor and a NumPy array in one state are the same memory. Let the "
                "state consist of one of them, and make the other one of it in the "
                "step."
            )


def detached(tensor: Any) -> Any:
    """The same memory, without the graph that led to it."""
    return tensor.detach() if tensor.requires_grad else tensor


def tensor_nbytes(tensor: Any) -> int:
    """The bytes that a copy takes."""
    if tensor.device.type != "cpu":
        return tensor.nbytes
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
    torch: Any = sys.modules["torch"]
    return tensor.clone(memory_format=torch.preserve_format)


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


def _is_alone(one: _Physical, plain: Sequence[_Physical]) -> bool:
    here = one.tensor.untyped_storage().data_ptr()
    sharing = [p for p in plain if p.tensor.untyped_storage().data_ptr() == here]
    return _is_dense(one.tensor) and (len(sharing) == 1 or not one.tensor.numel())


def _copied(tensors: Sequence[Any]) -> list[Any]:
    """Copies of tensors in the host's memory."""
    torch: Any = sys.modules["torch"]
    spans = [_span(tensor) for tensor in tensors]
    bounds, views = places_of(spans, [low for low, _ in spans])
    shared = overlapping(views)
    regions: dict[int, Any] = {}
    copies: list[Any] = []
    for tensor, view, (low, high) in zip(tensors, views, spans, strict=True):
        if view.region not in shared and _is_dense(tensor):
            copies.append(_cloned(tensor))
            continue
        if view.region not in regions:
            begin, end = bounds[view.region]
            memory = torch.empty(end - begin + _LINE, dtype=torch.uint8)
            regions[view.region] = memory[(begin - memory.data_ptr()) % _LINE :]
        region = regions[view.region]
        into = region[view.offset : view.offset + high - low]
        into.copy_(_bytes(tensor, high - low))
        offset = region.storage_offset() + view.offset
        copies.append(_placed(tensor, region.untyped_storage(), offset))
    return copies


def _bytes(tensor: Any, count: int) -> Any:
    """The memory that a tensor spans, as bytes."""
    torch: Any = sys.modules["torch"]
    first = tensor.storage_offset() * tensor.element_size()
    return torch.empty(0, dtype=torch.uint8).set_(
        tensor.untyped_storage(), first, (count,), (1,)
    )


def _placed(like: Any, storage: Any, offset: int) -> Any:
    """A tensor with the type, shape and strides of another, in a region of bytes."""
    torch: Any = sys.modules["torch"]
    first = offset // like.element_size()
    empty = torch.empty(0, dtype=like.dtype)
    return empty.set_(storage, first, like.shape, like.stride())


def _span(tensor: Any) -> tuple[int, int]:
    """The first byte of a tensor's memory, and the byte after its last."""
    low = tensor.data_ptr()
    if tensor.numel() == 0:
        return low, low
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((count - 1) * stride for count, stride in pairs)
    return low, low + (last + 1) * tensor.element_size()

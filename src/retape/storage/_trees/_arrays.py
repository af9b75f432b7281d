"""Copies and digests of NumPy arrays that keep what a step can observe.

A step may depend on more than an array's values. Sums and library kernels give other
last bits on another memory layout, and a step that changes `u[1:-1]` in place changes
`u` too, if one is a view of the other. So a copy has the strides of its original, and
arrays that overlap are copied as one *region*, with the same views of it. A digest, by
contrast, is of values alone: padding (in `longdouble` and in structured types) is
memory that nobody has written, and differs from run to run.
"""

# Arrays are of any type, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from retape._errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from hashlib import blake2b

Array: TypeAlias = np.ndarray[Any, Any]


class View(NamedTuple):
    """The place of an array in a region of bytes."""

    region: int
    offset: int


def copy_array(array: Array) -> Array:
    """A copy with the same values, type and strides.

    Raises:
        StoreError: If the elements are Python objects, which a copy would share.
    """
    if array.dtype.hasobject:
        refuse_objects(array)
    made = array.copy(order="K")
    # Order "K" keeps the order of the axes, but neither gaps nor negative strides.
    if made.strides == array.strides or array.size < 2:
        return made
    return copy_arrays([array], apart=False)[0]


def copy_arrays(arrays: Sequence[Array], *, apart: bool = True) -> list[Array]:
    """Copies that overlap one another where the originals do.

    Args:
        arrays: Any arrays.
        apart: Whether an array that overlaps no other is copied by itself.
    """
    if apart and _do_not_overlap(arrays):
        return [copy_array(array) for array in arrays]
    spans = [span(array) for array in arrays]
    _, views = places_of(spans, list(map(_address, arrays)))
    shared = overlapping(views) if apart else {view.region for view in views}
    kept = [i for i, view in enumerate(views) if view.region in shared]
    regions, within = into_regions([arrays[i] for i in kept])
    copies = {
        i: view_of(regions[view.region], arrays[i], view.offset)
        for i, view in zip(kept, within, strict=True)
    }
    return [
        copies[i] if i in copies else copy_array(array)
        for i, array in enumerate(arrays)
    ]


def into_regions(arrays: Sequence[Array]) -> tuple[list[Array], list[View]]:
    """Copy the memory that arrays span: regions of bytes, and the arrays' places.

    Arrays whose spans overlap share a region. Bytes that no array covers are zero.
    """
    spans = [span(array) for array in arrays]
    bounds, views = places_of(spans, list(map(_address, arrays)))
    regions = [np.zeros(high - low, np.uint8) for low, high in bounds]
    for array, view in zip(arrays, views, strict=True):
        if array.dtype.hasobject:
            refuse_objects(array)
        view_of(regions[view.region], array, view.offset)[...] = array
    return regions, views


def places_of(
    spans: Sequence[tuple[int, int]], addresses: Sequence[int]
) -> tuple[list[tuple[int, int]], list[View]]:
    """Join spans that overlap to regions: their bounds, and where each address is."""
    order = sorted(range(len(spans)), key=lambda i: spans[i])
    bounds: list[tuple[int, int]] = []
    views = [View(0, 0)] * len(spans)
    for i in order:
        low, high = spans[i]
        if bounds and low < bounds[-1][1]:
            bounds[-1] = bounds[-1][0], max(bounds[-1][1], high)
        else:
            bounds.append((low, high))
        views[i] = View(len(bounds) - 1, addresses[i] - bounds[-1][0])
    return bounds, views


def overlapping(views: Sequence[View]) -> set[int]:
    """The regions that more than one of these are in."""
    counts = Counter(view.region for view in views)
    return {region for region, count in counts.items() if count > 1}


def span(array: Array) -> tuple[int, int]:
    """The first byte of an array's memory, and the byte after its last."""
    low = high = _address(array)
    if array.size == 0:
        return low, high
    for count, stride in zip(array.shape, array.strides, strict=True):
        low += min(0, (count - 1) * stride)
        high += max(0, (count - 1) * stride)
    return low, high + array.itemsize


def _address(array: Array) -> int:
    return array.__array_interface__["data"][0]


def is_plain(array: Array) -> bool:
    """Tell whether NumPy's file format restores the memory layout of an array."""
    flags = array.flags
    return flags.c_contiguous or flags.f_contiguous


def overlap(arrays: Sequence[Array]) -> bool:
    """Tell whether the memory of two arrays overlaps, by its bounds."""
    if _do_not_overlap(arrays):
        return False
    spans = sorted(span(array) for array in arrays)
    return any(b[0] < a[1] for a, b in zip(spans, spans[1:], strict=False))


def refuse_objects(array: Array) -> None:
    """Raise: the elements of this array are Python objects."""
    raise StoreError(
        f"an array of dtype `{array.dtype}` cannot be in a state: its elements "
        "are Python objects. Use an array of numbers."
    )


def digest_array(total: blake2b, array: Array) -> None:
    """Add the type, the shape and the values of an array to a digest."""
    total.update(f"{array.dtype.str}{array.shape}".encode())
    for part in _values(array):
        total.update(part.data)


def _values(array: Array) -> Iterator[Array]:
    """The bytes of an array without its padding, in the order of its elements."""
    if array.dtype.names is not None:
        for name in array.dtype.names:
            yield from _values(array[name])
        return
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.isbuiltin == 2:
        flat = flat.view(f"V{flat.dtype.itemsize}")
    if flat.dtype.char in "gG":
        flat = flat.astype(flat.dtype.newbyteorder("="), copy=False)
        flat = flat.view(np.longdouble)
    if flat.dtype.char == "g" and np.finfo(np.longdouble).nmant == 63:
        # The 80-bit type of x86: ten bytes are the number, two or six are not.
        words = flat.view(np.uint8).reshape(-1, flat.itemsize)
        yield np.ascontiguousarray(words[:, :10]).reshape(-1)
        return
    yield flat.view(np.uint8) if flat.size else np.empty(0, np.uint8)


def _do_not_overlap(arrays: Sequence[Array]) -> bool:
    """Whether it is plain to see: each array owns its memory, and none is twice."""
    return len(arrays) < 2 or (
        all(array.base is None for array in arrays)
        and len({id(array) for array in arrays}) == len(arrays)
    )


def view_of(region: Array, like: Array, offset: int) -> Array:
    """An array with the shape, type and strides of another, in a region of bytes."""
    return np.ndarray(like.shape, like.dtype, region, offset, like.strides)  # pyright: ignore

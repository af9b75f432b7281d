"""A tensor as a storage and a geometry.

Below autograd a tensor is a window on a storage. The trace keeps the two apart: values
belong to storages, and a geometry (size, stride, offset, element type, lazy
conjugation and negation) is interned, so that comparing two is comparing identities
and a program of a million operators has as many geometries as it has shapes.
"""

from typing import Any

import torch
from torch import Tensor
from torch import UntypedStorage as Storage

from retape._errors import UnsupportedError
from retape.engines.eager._function_levels import TRANSFORMS, key_set

_AUTOGRAD = "AutogradFunctionality", "AutogradOther", "AutogradNestedTensor"
_DEVICES = "CPU", "CUDA", "XPU", "MPS", "HPU", "PrivateUse1"
AUTOGRAD = key_set(*_AUTOGRAD)
"""What is left out where operators have no graph, and are seen by all else."""
NEW = key_set(*_AUTOGRAD, "ADInplaceOrView")
"""The same, where a window is made for which no write is counted yet."""
# A backward may run under `vmap` (`is_grads_batched`), which refuses random numbers, or
# inside of another transform, which would take part in it.
_ABOVE = key_set(
    *_AUTOGRAD, *(f"Autocast{each}" for each in _DEVICES),
    "FuncTorchVmapMode", "VmapMode", *TRANSFORMS,
)  # fmt: skip


class below_autograd:
    """Dispatch straight to the kernels: no graph, no hooks, no autocast, no `vmap`.

    The trace is taken below these levels, so a replay must enter there. PyTorch has no
    public way in. Gradient mode, which some kernels read, is restored.
    """

    __slots__ = ("_grad", "_guard")

    def __enter__(self) -> None:
        self._grad = torch.is_grad_enabled()
        self._guard = torch._C._ExcludeDispatchKeyGuard(_ABOVE)
        try:
            torch._C._set_grad_enabled(False)
            self._guard.__enter__()
        except BaseException:  # Ctrl-C may come between any two lines
            self.__exit__(None, None, None)
            raise

    def __exit__(self, *exception: object) -> None:
        try:
            self._guard.__exit__(*exception)
        finally:
            torch._C._set_grad_enabled(self._grad)


def proxies() -> object:
    """The mode that traces functions to graphs, if it is at work."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY)


def refuse_proxies() -> None:
    """Refuse to compute something of ours where it would become part of a graph."""
    if proxies() is not None:
        raise UnsupportedError(
            "A function is traced to a graph inside of a recomputation "
            "(`torch.func.linearize`, `make_fx` or `torch.export`), which would trace "
            "the recomputation as well. Trace it before, or outside."
        )


class Geometry:
    """Size, stride, offset and type of a view. Compared by identity: intern it."""

    __slots__ = ("size", "stride", "offset", "dtype", "conj", "neg", "plain", "native")

    def __init__(self, key: tuple[Any, ...], conj: bool, neg: bool) -> None:
        self.size, self.stride, self.offset, self.dtype = key
        self.conj, self.neg = conj, neg
        self.plain = not (conj or neg)
        self.native: Any = None


class Geometries:
    """The interned geometries of one trace."""

    __slots__ = ("_table",)

    def __init__(self) -> None:
        self._table: dict[tuple[Any, ...], Geometry] = {}

    def of(self, tensor: Tensor) -> Geometry:
        """The geometry of `tensor`."""
        key = (tensor.size(), tensor.stride(), tensor.storage_offset(), tensor.dtype)
        if tensor.is_conj() or tensor.is_neg():
            return self._flagged(key, tensor.is_conj(), tensor.is_neg())
        found = self._table.get(key)
        if found is None:
            found = self._table[key] = Geometry(key, False, False)
        return found

    def _flagged(self, key: tuple[Any, ...], conj: bool, neg: bool) -> Geometry:
        long_key = (*key, conj, neg)
        found = self._table.get(long_key)
        if found is None:
            found = self._table[long_key] = Geometry(key, conj, neg)
        return found


def has_storage(tensor: Tensor) -> bool:
    """Tell whether a tensor is a window on a storage, and nothing else.

    A quantized one has scales, which no storage shows.
    """
    strided = tensor.layout is torch.strided
    return strided and not (tensor.is_nested or tensor.is_quantized)


def tensor_on(storage: Storage, geometry: Geometry) -> Tensor:
    """A new tensor that looks at `storage` through `geometry`. Call below autograd."""
    tensor = torch.empty(0, dtype=geometry.dtype, device=storage.device)
    tensor.set_(storage, geometry.offset, geometry.size, geometry.stride)  # pyright: ignore[reportArgumentType]
    return tensor if geometry.plain else _flag(tensor, geometry)


def view_through(root: Tensor, seen: Geometry, wanted: Geometry) -> Tensor:
    """`root`, whose geometry is `seen`, through another geometry."""
    if wanted.dtype is seen.dtype and wanted.plain and seen.plain:
        return torch.as_strided(root, wanted.size, wanted.stride, wanted.offset)
    return tensor_on(root.untyped_storage(), wanted)


def _flag(tensor: Tensor, geometry: Geometry) -> Tensor:
    if geometry.conj:
        tensor = tensor.conj()
    if geometry.neg:
        tensor = torch._neg_view(tensor)  # pyright: ignore[reportPrivateImportUsage]
    return tensor


def disjoint(one: Geometry, other: Geometry) -> bool:
    """Tell whether two windows on a storage share no element; `False` if in doubt.

    Only windows of equal strides are compared: as boxes in the coordinates that the
    strides span, provided that neither wraps around.

    Examples:
        The halves of a row-major matrix, left and right, are disjoint although their
        bytes interleave.
    """
    if one.stride != other.stride or one.dtype is not other.dtype:
        return False
    dims = sorted(range(len(one.stride)), key=lambda k: -one.stride[k])
    first, second, outer = one.offset, other.offset, None
    for k in dims:
        step = one.stride[k]
        if step <= 0 or (outer is not None and outer % step):
            return False
        a, first = divmod(first, step)
        b, second = divmod(second, step)
        if (
            outer is not None
            and max(a + one.size[k], b + other.size[k]) > outer // step
        ):
            return False
        if a + one.size[k] <= b or b + other.size[k] <= a:
            return True
        outer = step
    return False


def storage_refcount(storage: Storage) -> int:
    """The number of references to the memory, the Python object's one included.

    No public function tells. Only this number says whether anybody but the trace can
    still write into a storage once recording is over.
    """
    return torch._C._storage_Use_Count(storage._cdata)  # pyright: ignore[reportAttributeAccessIssue]

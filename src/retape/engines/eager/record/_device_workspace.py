"""Bytes that kernels on a GPU take for themselves, as its allocator tells.

The first time that an operator runs on operands of some sizes, what was asked of the
caching allocator meanwhile, less its results, is what its kernel took inside: libraries
for products, convolutions, recurrent layers and attention work in such memory. Its
backward is taken to need as much; on the way back nobody sees where a kernel begins.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from retape.engines.eager.trace._signature import Signature

# By operator and sizes of operands: some hundred for a model, for the whole process.
_taken: dict[tuple[Any, tuple[int, ...]], int] = {}


def run_and_measure(
    signature: Signature,
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Run an operator for the first time in a record; its signature gets the bytes."""
    device = next((a.device for a in args if isinstance(a, Tensor)), None)
    if device is None or device.type != "cuda":
        return func(*args, **kwargs)
    known = signature.func, signature.sizes
    taken = _taken.get(known)
    if taken is None:
        before = _asked_for(device)
        result = func(*args, **kwargs)
        taken = max(0, _asked_for(device) - before - _result_bytes(args, result))
        _taken[known] = taken
    else:
        result = func(*args, **kwargs)
    if taken:  # what works in memory of its own holds no tensors on the way
        signature.spare = 0
        signature.workspace = signature.reverse_workspace = taken
    return result


def _asked_for(device: torch.device) -> int:
    """All bytes that the allocator was ever asked for; it does not know what for."""
    counts = torch.cuda.memory_stats(device)
    return counts.get("requested_bytes.all.allocated", 0)


def _result_bytes(args: tuple[Any, ...], result: Any) -> int:
    """Bytes of the storages that an operator made."""
    given = {a.untyped_storage()._cdata for a in args if isinstance(a, Tensor)}
    results = result if isinstance(result, tuple | list) else (result,)
    made = {
        each.untyped_storage()._cdata: each.untyped_storage().nbytes()
        for each in results
        if isinstance(each, Tensor) and each.layout is torch.strided
    }
    return sum(nbytes for key, nbytes in made.items() if key not in given)

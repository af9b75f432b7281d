"""What a kernel takes inside, and its backward, measured when it first runs.

On a GPU the caching allocator tells what was given back to it. The first time that an
operator runs on operands of some sizes, that is what its kernel has worked in: so do
libraries for products, convolutions, recurrent layers and attention. Then its backward
is tried, once, on cotangents of its own, beside the budget: what is given back
meanwhile is what the way back takes beyond cotangents. (On an H100 the gradient of a
bias in bfloat16 works in four times the bytes of what it sums up, and the backward of a
convolution in twice those of the forward kernel.)
"""

from collections.abc import Callable
from threading import Thread
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves, tree_map_only

from retape.engines.eager.keep._copies import streams_of
from retape.engines.eager.trace._random_state import RandomStates, generator_for
from retape.engines.eager.trace._step import Signature


class Taken(NamedTuple):
    """Bytes that a kernel works in.

    Attributes:
        forward: Beyond its results.
        reverse: Those of its backward, beyond cotangents; `None` if it was not tried.
    """

    forward: int
    reverse: int | None


# By operator and operands: some hundred for a model, for the whole process.
_taken: dict[tuple[Any, ...], Taken] = {}


def run_and_measure(
    signature: Signature,
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Run an operator for the first time in a record; its signature gets the bytes."""
    device = next((a.device for a in args if isinstance(a, Tensor)), None)
    if device is None or not tells_bytes(device):
        return func(*args, **kwargs)
    known = signature.func, signature.sizes, signature.differentiable
    taken = _taken.get(known)
    if taken is None and not any(map(_has_no_values, tree_leaves((args, kwargs)))):
        before = released_bytes(device)
        result = func(*args, **kwargs)
        forward = released_bytes(device) - before
        taken = Taken(forward, _try_backward(signature, device, args, kwargs))
        _taken[known] = taken
    else:
        result = func(*args, **kwargs)
    if taken is not None:
        signature.take_measured(*taken)
    return result


def tells_bytes(device: torch.device) -> bool:
    """Tell whether the allocator of a device says what was given back to it."""
    return device.type == "cuda"


def released_bytes(device: torch.device) -> int:
    """All bytes that were ever given back to the allocator."""
    return torch.cuda.memory_stats(device).get("requested_bytes.all.freed", 0)


def _has_no_values(value: Any) -> bool:
    return isinstance(value, FakeTensor) or (
        isinstance(value, Tensor) and value.is_meta
    )


def _try_backward(
    signature: Signature, device: torch.device, args: Any, kwargs: dict[str, Any]
) -> int | None:
    """Bytes that the backward of an operator works in, beyond cotangents.

    It is run in a thread of its own, which no mode, hook or guard of this one reaches.
    Operators that overwrite, and those whose formula may be a user's, are not tried.
    """
    kind = signature.kind
    if signature.passive or not signature.grad or kind.writes:
        return None
    if signature.func.namespace != "aten":
        return None
    streams = streams_of(device)
    assert streams is not None
    present, found = streams.current_stream(device), list[int]()

    def ask() -> None:
        try:
            with streams.stream(present), RandomStates() as states:
                if kind.random:
                    generator = generator_for(args, kwargs)
                    states.set(generator, generator.get_state())
                found.append(_backward_bytes(signature, device, args, kwargs))
        except Exception:  # no memory for it, no derivative: as if it was not tried
            return

    thread = Thread(target=ask)
    thread.start()
    thread.join()
    return found[0] if found else None


def _backward_bytes(
    signature: Signature, device: torch.device, args: Any, kwargs: dict[str, Any]
) -> int:
    flags = iter(signature.differentiable)
    inputs: list[Tensor] = []

    def own(tensor: Tensor) -> Tensor:
        copy = tensor.detach()
        if next(flags):
            inputs.append(copy.requires_grad_())
        return copy

    args, kwargs = tree_map_only(Tensor, own, (args, kwargs))
    made = tree_leaves(signature.func(*args, **kwargs))
    results = [r for r in made if isinstance(r, Tensor) and r.requires_grad]
    cotangents = [torch.ones_like(each) for each in results]
    before = released_bytes(device)
    gradients = torch.autograd.grad(results, inputs, cotangents, allow_unused=True)
    after = released_bytes(device)
    del gradients  # they are no part of it
    return after - before

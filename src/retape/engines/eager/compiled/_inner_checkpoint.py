"""A checkpoint inside of a compiled function: PyTorch's own, which it traces."""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, TypeVar

from torch.utils import checkpoint as pytorch

from retape.engines.eager._errors import UnsupportedError

R = TypeVar("R")


def inner_checkpoint(
    function: Callable[..., R],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    options: Mapping[str, Any],
) -> R:
    """Call a function whose operators the compiled backward runs again.

    The compiler traces this call: there is no second call of the function, and nothing
    of ours is left in what it makes.

    Args:
        function: What to call.
        args: Its arguments.
        kwargs: Its keyword arguments.
        options: Those of `retape.torch.checkpoint` that bear on it.

    Raises:
        UnsupportedError: If an option has no counterpart there.
    """
    if options["debug"]:
        raise UnsupportedError(
            "`debug=True` compares values that are recomputed one by one, and the "
            "compiler computes them in kernels of its own. Compare without "
            "`torch.compile`."
        )
    policy = options["policy"]
    if policy is not None and not isinstance(policy, Collection):
        raise UnsupportedError(
            "`policy` is a function, or names regions, and inside of `torch.compile` "
            "the operators to keep have to be named: pass a list of overloads, or "
            "`context_fn=functools.partial(create_selective_checkpoint_contexts, ...)`."
        )
    more: dict[str, Any] = {"determinism_check": options["determinism_check"]}
    if options["context_fn"] is not None:
        more["context_fn"] = options["context_fn"]
    elif policy is not None:
        kept = list(policy)
        more["context_fn"] = partial(pytorch.create_selective_checkpoint_contexts, kept)
    result: Any = pytorch.checkpoint(
        function, *args, use_reentrant=False, **more, **kwargs
    )
    return result

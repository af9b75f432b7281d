"""Checkpoint one region; `_checkpointed` takes a module, and chains are beside it.

They take what `torch.utils.checkpoint` takes. What is recomputed is recomputed by the
trace, not by calling the function again, so buffers are updated once, counters count
once, and any generator is restored.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from functools import partial, wraps
from typing import Any, TypeVar, overload

from torch.utils import checkpoint as pytorch

from retape._arguments import truth, word_of
from retape._errors import PlanError, UnsupportedError
from retape.engines.eager._limits import Limits, check_callable
from retape.engines.eager._torch_compile import being_compiled
from retape.engines.eager.api._recompute import P, Recomputation
from retape.engines.eager.record._policy import (
    Policy,
    SelectivePolicy,
    as_collection,
)

R = TypeVar("R")
WHOLE = Limits(memory=None, snapshots=1, stage=2**62, keep_tail=False)


@overload
def checkpoint(
    function: Callable[..., R],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    determinism_check: str = "default",
    debug: bool = False,
    context_fn: Callable[..., Any] | None = None,
    early_stop: bool = True,
    respect_saved_tensors_hooks: bool | None = None,
    policy: Policy | None = None,
    **kwargs: Any,
) -> R: ...
@overload
def checkpoint(
    function: None = None,
    *,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    determinism_check: str = "default",
    debug: bool = False,
    context_fn: Callable[..., Any] | None = None,
    early_stop: bool = True,
    respect_saved_tensors_hooks: bool | None = None,
    policy: Policy | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def checkpoint(
    function: Callable[..., Any] | None = None,
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    determinism_check: str = "default",
    debug: bool = False,
    context_fn: Callable[..., Any] | None = None,
    early_stop: bool = True,
    respect_saved_tensors_hooks: bool | None = None,
    policy: Policy | None = None,
    **kwargs: Any,
) -> Any:
    """Call a function, keeping only its inputs for the backward.

    Args:
        function: What to call. Without one the result is a decorator with the options.
        *args: Its arguments.
        use_reentrant: Accepted; there is one implementation.
        preserve_rng_state: Accepted; random state is always restored.
        determinism_check: `"default"` or `"none"`; see `debug` for a real check.
        debug: Compare every recomputed value with its first run.
        context_fn: `create_selective_checkpoint_contexts` with its policy or list of
            operators, as PyTorch's function takes it, or contexts without effect.
        early_stop: Accepted; only what the backward asks for is ever recomputed.
        respect_saved_tensors_hooks: Hooks around the call are not called for what
            `policy` keeps, which `False` says, and `True` is refused.
        policy: Operators whose results are kept, as one or more overloads or a
            function from an overload to a boolean; `matrix_products` is one. Or
            `names`, for regions that are kept.
        **kwargs: Its keyword arguments.

    Returns:
        What the function returns.

    Raises:
        PlanError: If `determinism_check` is neither of the two, `policy` and
            `context_fn` are both given, one of them is no policy, or `function` cannot
            be called.
        UnsupportedError: If an option has no counterpart inside of a function that
            `torch.compile` compiles, where this is PyTorch's own checkpoint; or with
            `respect_saved_tensors_hooks=True`.
        DeterminismError: In the backward, with `debug`, if a recomputed value differs.

    Examples:
        >>> import torch, retape.torch
        >>> w = torch.ones(3, requires_grad=True)
        >>> retape.torch.checkpoint(torch.sin, w).sum().backward()
        >>> torch.equal(w.grad, w.detach().cos())
        True
    """
    if respect_saved_tensors_hooks:
        raise UnsupportedError(
            "`respect_saved_tensors_hooks=True`: what a checkpoint keeps is in no "
            "graph that such hooks see. Write them inside of the checkpoint, around a "
            "part of the function, or leave the option out."
        )
    policy = as_collection(policy)
    options = {
        "determinism_check": determinism_check,
        "debug": debug,
        "context_fn": context_fn,
        "policy": policy,
    }
    if function is None and not args:
        return partial(_as_decorator, options)
    del use_reentrant, preserve_rng_state, early_stop
    call: Any = function
    check_callable(call, "Pass the function first, and then its arguments.")
    values = "; for a check of values pass `debug=True`"
    word_of("determinism_check", determinism_check, ("default", "none"), values)
    truth("debug", debug)
    if policy is not None and context_fn is not None:
        raise PlanError("`policy` and `context_fn` both say what to keep; give one.")
    if being_compiled():
        return _inside_of_compiled(call, args, kwargs, options)
    contexts: tuple[Any, ...] = () if context_fn is None else context_fn()
    # PyTorch's own default makes contexts that do nothing.
    if all(isinstance(each, nullcontext) for each in contexts):
        with Recomputation(WHOLE, verify=debug, policy=policy):
            return call(*args, **kwargs)
    selective = SelectivePolicy(contexts[0])
    # The mode is outside of the recorder, so it sees what the recorder runs.
    with selective, Recomputation(WHOLE, verify=debug, policy=selective.keeps):
        return call(*args, **kwargs)


def _as_decorator(options: Mapping[str, Any], function: Callable[..., R]) -> Any:
    check_callable(function, "Put the decorator above a function.")

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> R:
        return checkpoint(partial(function, *args, **kwargs), **options)

    return called


def _inside_of_compiled(
    function: Callable[..., R],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    options: Mapping[str, Any],
) -> R:
    """Call a function, by PyTorch's own checkpoint, in a function that is compiled.

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

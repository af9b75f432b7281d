"""Checkpoint one region or one module; `_checkpoint_sequential` takes a chain.

They take what `torch.utils.checkpoint` takes. What is recomputed is recomputed by the
trace, not by calling the function again, so buffers are updated once, counters count
once, and any generator is restored.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

from torch import nn

from retape.engines.eager._errors import PlanError
from retape.engines.eager._limits import Limits
from retape.engines.eager._torch_compile import being_compiled
from retape.engines.eager.api._recompute import Recomputation
from retape.engines.eager.compiled._inner_checkpoint import inner_checkpoint
from retape.engines.eager.record._policy import (
    Policy,
    SelectivePolicy,
    as_collection,
)
from retape.engines.eager.record._sharded_modules import has_sharded_modules

R = TypeVar("R")
_TABLES = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")
_WHOLE = Limits(memory=None, snapshots=1, stage=2**62, keep_tail=False)


def checkpoint(
    function: Callable[..., R],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    determinism_check: str = "default",
    debug: bool = False,
    context_fn: Callable[..., Any] | None = None,
    early_stop: bool = True,
    policy: Policy | None = None,
    **kwargs: Any,
) -> R:
    """Call a function, keeping only its inputs for the backward.

    Args:
        function: What to call.
        *args: Its arguments.
        use_reentrant: Accepted; there is one implementation.
        preserve_rng_state: Accepted; random state is always restored.
        determinism_check: `"default"` or `"none"`; see `debug` for a real check.
        debug: Compare every recomputed value with its first run.
        context_fn: `create_selective_checkpoint_contexts` with its policy or list of
            operators, as PyTorch's function takes it, or contexts without effect.
        early_stop: Accepted; only what the backward asks for is ever recomputed.
        policy: Operators whose results are kept, as one or more overloads or a
            function from an overload to a boolean; `matrix_products` is one.
        **kwargs: Its keyword arguments.

    Returns:
        What the function returns.

    Raises:
        PlanError: If `determinism_check` is neither of the two, `policy` and
            `context_fn` are both given, one of them is no policy, or `function` cannot
            be called.
        UnsupportedError: If an option has no counterpart inside of a function that
            `torch.compile` compiles, where this is PyTorch's own checkpoint.
        DeterminismError: In the backward, with `debug`, if a recomputed value differs.

    Examples:
        >>> import torch, retape.torch
        >>> w = torch.ones(3, requires_grad=True)
        >>> retape.torch.checkpoint(torch.sin, w).sum().backward()
        >>> torch.equal(w.grad, w.detach().cos())
        True
    """
    del use_reentrant, preserve_rng_state, early_stop
    policy = as_collection(policy)
    if not callable(function):
        raise PlanError(
            f"`function` is of type `{type(function).__name__}`, which cannot be "
            "called. Pass the function first, and then its arguments."
        )
    if determinism_check not in ("default", "none"):
        raise PlanError(
            f'`determinism_check={determinism_check!r}` is neither "default" nor '
            '"none". For a check of values pass `debug=True`.'
        )
    if policy is not None and context_fn is not None:
        raise PlanError("`policy` and `context_fn` both say what to keep; give one.")
    if being_compiled():
        options = {
            "determinism_check": determinism_check,
            "debug": debug,
            "context_fn": context_fn,
            "policy": policy,
        }
        return inner_checkpoint(function, args, kwargs, options)
    contexts = () if context_fn is None else context_fn()
    # PyTorch's own default makes contexts that do nothing.
    if all(isinstance(each, nullcontext) for each in contexts):
        with Recomputation(_WHOLE, verify=debug, policy=policy):
            return function(*args, **kwargs)
    selective = SelectivePolicy(contexts[0])
    # The mode is outside of the recorder, so it sees what the recorder runs.
    with selective, Recomputation(_WHOLE, verify=debug, policy=selective.keeps):
        return function(*args, **kwargs)


class Checkpointed(nn.Module):
    """A module whose forward is one recomputed region.

    It shares the module's parameters, buffers and children under their own names, so
    the keys of a state dict are unchanged, whatever it is nested in. Attributes that
    the wrapper does not have are looked up in the module.

    Raises:
        PlanError: If it is given something else than a module.

    Examples:
        >>> list(Checkpointed(nn.Linear(2, 2)).state_dict())
        ['weight', 'bias']
    """

    def __init__(self, module: nn.Module, policy: Policy | None = None) -> None:
        super().__init__()
        if not isinstance(module, nn.Module):
            raise PlanError(
                f"`module` is of type `{type(module).__name__}` and no "
                "`torch.nn.Module`. For a function use `retape.torch.checkpoint`."
            )
        # The tables are shared, not nested: that keeps every name as it is.
        for table in ("_parameters", "_buffers", "_modules"):
            self.__dict__[table] = getattr(module, table)
        self.__dict__["_non_persistent_buffers_set"] = (
            module._non_persistent_buffers_set
        )
        self.__dict__["module"] = module
        self._policy = policy
        self.training = module.training
        _share_sharding(self, module)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's forward, recomputed in the backward."""
        if being_compiled():
            return checkpoint(self.module, *args, policy=self._policy, **kwargs)
        with Recomputation(_WHOLE, policy=self._policy):
            return self.module(*args, **kwargs)

    def train(self, mode: bool = True) -> "Checkpointed":
        """Set the mode of the wrapper and of the module."""
        super().train(mode)
        self.module.training = mode
        return self

    def __getattr__(self, name: str) -> Any:
        """An attribute of the wrapper, else of the module."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["module"], name)


def _share_sharding(wrapper: nn.Module, module: nn.Module) -> None:
    """Let `fully_shard` (FSDP2) know the wrapper for a module that it has sharded.

    Else it would shard the parameters once more with the module around the wrapper.
    """
    if not has_sharded_modules():
        return
    from torch.distributed import _composable_state as composable

    state = composable._get_module_state(module)
    if state is not None:
        composable._insert_module_state(wrapper, state)

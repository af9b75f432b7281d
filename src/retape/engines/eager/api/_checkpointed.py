"""`Checkpointed`: a module whose forward is one recomputed region.

The wrapper is its module in all but the call: what is read, set and deleted, and what
changes parameters and modes, is passed on, so that nothing is said to the wrapper alone
and left without effect. Hooks around the forward are the wrapper's own.
"""

import copy
import functools
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from retape._errors import PlanError
from retape.engines.eager.api._checkpoint import checkpoint
from retape.engines.eager.record._policy import Policy
from retape.engines.eager.record._record_collective import has_sharded_modules

# Shared, not nested: that keeps every name as it is.
_TABLES = (
    "_parameters", "_buffers", "_modules", "_non_persistent_buffers_set",
    "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)  # fmt: skip
# A module may have its own of them: one that stays in evaluation mode, say.
_PASSED_ON = (
    "_apply", "_load_from_state_dict", "_save_to_state_dict", "add_module", "apply",
    "bfloat16", "cpu", "cuda", "double", "eval", "extra_repr", "float",
    "get_extra_state", "half", "load_state_dict", "register_buffer", "register_module",
    "register_parameter", "requires_grad_", "set_extra_state", "share_memory",
    "state_dict", "to", "to_empty", "train", "type", "zero_grad",
)  # fmt: skip

_PARAMETRIZED = (
    "A `Checkpointed` is no module to parametrize: what its module reads would not "
    "change. Parametrize the module before it is wrapped, or its `module`: "
    "`register_parametrization(checkpointed.module, ...)`."
)


class Checkpointed(nn.Module):
    """A module whose forward is one recomputed region.

    It shares the module's parameters, buffers and children under their own names, so
    the keys of a state dict are unchanged, whatever it is nested in. Attributes are
    those of the module, whether they are read, set or deleted.

    Args:
        module: The module; it stays in `module`.
        policy: Operators whose results are kept, as for `checkpoint`.

    Raises:
        PlanError: If it is given something else than a module, is to be given another
            one later, or is parametrized itself.

    Examples:
        >>> list(Checkpointed(nn.Linear(2, 2)).state_dict())
        ['weight', 'bias']
    """

    module: nn.Module
    _policy: Policy | None

    def __init__(self, module: nn.Module, policy: Policy | None = None) -> None:
        super().__init__()
        if not isinstance(module, nn.Module):
            raise PlanError(
                f"`module` is of type `{type(module).__name__}` and no "
                "`torch.nn.Module`. For a function use `retape.torch.checkpoint`."
            )
        del self.__dict__["training"]  # it is the module's
        self.__dict__["_policy"] = policy
        _wrap(self, module)
        _share_sharding(self, module)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's forward, recomputed in the backward."""
        call = functools.partial(self.module, *args, **kwargs)
        return checkpoint(call, policy=self._policy)

    def __getattr__(self, name: str) -> Any:
        """An attribute of the module, if the wrapper has none of that name."""
        module = self.__dict__.get("module")
        if module is None:  # it is being made, by pickle or in a copy
            raise AttributeError(f"a `Checkpointed` without a module has no `{name}`")
        return getattr(module, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set it where it is read: in the module, or here if the wrapper has it."""
        if name == "module":
            raise PlanError(
                f"`module` of a `Checkpointed` cannot become a `{type(value).__name__}`"
                ": parameters and hooks are those of the first one. Wrap it anew: "
                "`Checkpointed(other)`."
            )
        if name == "parametrizations":
            raise PlanError(_PARAMETRIZED)
        if self._is_own(name):
            object.__setattr__(self, name, value)
        else:
            setattr(self.module, name, value)

    def __delattr__(self, name: str) -> None:
        """Delete it where it is read."""
        if name in self._parameters and is_parametrized(self.module):
            raise PlanError(_PARAMETRIZED)  # it would go into the class of all wrappers
        if self._is_own(name):
            object.__delattr__(self, name)
        else:
            delattr(self.module, name)

    def _is_own(self, name: str) -> bool:
        return name in self.__dict__ or hasattr(type(self), name)

    def __copy__(self) -> "Checkpointed":
        return self._around(copy.copy(self.module))

    def _replicate_for_data_parallel(self) -> "Checkpointed":
        replicate: Any = self.module._replicate_for_data_parallel
        return self._around(replicate())

    def _around(self, module: nn.Module) -> "Checkpointed":
        """As this one, with its hooks, around another module."""
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        _wrap(made, module)
        return made


def _wrap(wrapper: Checkpointed, module: nn.Module) -> None:
    for table in _TABLES:
        wrapper.__dict__[table] = getattr(module, table)
    wrapper.__dict__["module"] = module


def _passed_on(name: str) -> Callable[..., Any]:
    @functools.wraps(getattr(nn.Module, name))
    def method(self: Checkpointed, *args: Any, **kwargs: Any) -> Any:
        result = getattr(self.module, name)(*args, **kwargs)
        return self if result is self.module else result

    return method


for _name in _PASSED_ON:
    setattr(Checkpointed, _name, _passed_on(_name))


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
